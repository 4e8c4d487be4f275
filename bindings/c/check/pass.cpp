// mneme-check: finds pointers that are followed, or stored, where they do not belong.
//
// Every access that is not proven to go to the process' own memory or to the space that the thread
// is in gets a check, which the runtime (runtime.c) decides. What is wrong whatever happens at run
// time is a warning of the compiler.
//
// The analysis is that of SpaceJMP (El Hajj et al., ASPLOS 2016, section 4.3 and figure 5), with
// the current space in SSA form: at each point it has one name, which is the handle that was
// switched to, or the point from which on it is unknown but the same. A pointer that was allocated
// under a name is safe under that name, even in a function that does not know its callers' space.
//
// A clone has its original's addresses, so that an address does not say which of them is meant.
// With -mneme-check-clones each pointer has a tag: the handle that the thread was in when the
// pointer was made. Tags are SSA values beside the pointers; the runtime hands them to a callee, to
// a caller, and from a store into the process' own memory to the load.

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

using namespace llvm;

namespace {

cl::opt<bool> CheckAll("mneme-check-all", cl::desc("Prove nothing: check every access"));
cl::opt<bool> Clones("mneme-check-clones",
                     cl::desc("Tell apart segments that share addresses: a clone, its original"));
cl::opt<bool> Count("mneme-check-count",
                    cl::desc("Print how many accesses are proven, and checked"));

const char *const PassName = "mneme-check";

// A name of a space, or a mark. A space is named by the handle that was switched to, by the call
// after which it may be another, by the block in which two of them meet, or by the function that
// is entered in it.
using Id = const void *;
const char CommonMark = 0, UnknownMark = 0, PrimaryMark = 0, ExitMark = 0;
const Id Common = &CommonMark;   // The process' own memory.
const Id Unknown = &UnknownMark; // Anything.
const Id Primary = &PrimaryMark; // The primary space, where a thread is inside of nothing.
const Id AtExit = &ExitMark;     // In a function's result: the space in which it returns.

using Set = std::set<Id>;

bool join(Set &Into, const Set &From) {
    size_t Before = Into.size();
    Into.insert(From.begin(), From.end());
    return Into.size() != Before;
}

bool isOnly(const Set &S, Id One) { return S.size() == 1 && *S.begin() == One; }

// The one space that a pointer certainly belongs to; else null.
Id certain(const Set &S) {
    bool IsOne = S.size() == 1 && *S.begin() != Common && *S.begin() != Unknown;
    return IsOne ? *S.begin() : nullptr;
}

enum class Reading { Never, Perhaps, Always };

// What is known of the thread at a point.
struct State {
    Id Space = nullptr;
    // Whether its segments were entered for reading only.
    Reading Only = Reading::Never;
    // The switch that led here, as long as its result has not been looked at.
    const CallBase *Pending = nullptr;

    bool operator==(const State &O) const {
        return Space == O.Space && Only == O.Only && Pending == O.Pending;
    }
};

// What is known of a function from outside, or of its callers from inside.
struct Summary {
    bool Switches = false;        // The thread may be in another space when it returns.
    bool CallersAreKnown = false; // It is called by name, from this module alone.
    std::vector<Set> Arguments;   // Names are those of the callee: its entry's is the function.
    Set Result;                   // Common, Unknown, AtExit.
    Reading Entry = Reading::Never;
    bool IsCalled = false;
};

struct Facts {
    DenseMap<const Function *, Summary> Functions;
    // Some call takes segments off a space: what was proven of pointers may end.
    bool Detaches = false;
    // Some call attaches segments to the primary space.
    bool AttachesToPrimary = false;
    std::function<const TargetLibraryInfo &(Function &)> Library;
};

StringRef calleeName(const Instruction &I) {
    if (auto *Call = dyn_cast<CallBase>(&I))
        if (auto *F = Call->getCalledFunction())
            return F->getName();
    return "";
}

bool isSwitch(StringRef Name) { return Name == "vas_switch" || Name == "vas_switch_as"; }

// Gives segments to where the thread may be, or takes them: it leaves and enters again.
bool isReentry(StringRef Name) {
    return Name.starts_with("seg_attach_") || Name.starts_with("seg_detach_") ||
           Name == "vas_access" || Name == "vas_control";
}

bool isSegmentAllocator(StringRef Name) {
    return StringSwitch<bool>(Name)
        .Cases("vas_malloc", "vas_calloc", "vas_realloc", "seg_malloc", true)
        .Cases("seg_calloc", "seg_aligned_alloc", "seg_root", true)
        .Default(false);
}

bool isOfMneme(StringRef Name) {
    return Name.starts_with("vas_") || Name.starts_with("seg_") || Name.starts_with("mneme_");
}

// Libraries that know nothing of spaces; C++'s is known by its mangled names.
bool isOfStandardLibrary(StringRef Name) {
    for (StringRef Start : {"_ZSt", "_ZNSt", "_ZNKSt", "_Zn", "_Zd", "__cxa_", "__gxx_", "pthread_",
                            "__mneme_", "__assert", "__errno", "__isoc", "_Unwind"})
        if (Name.starts_with(Start))
            return true;
    return false;
}

// A handle's number, if it is a constant.
std::optional<uint64_t> constantHandle(const Value *V) {
    if (isa<ConstantPointerNull>(V))
        return 0;
    if (auto *E = dyn_cast<ConstantExpr>(V); E && E->getOpcode() == Instruction::IntToPtr)
        if (auto *N = dyn_cast<ConstantInt>(E->getOperand(0)))
            return N->getZExtValue();
    return std::nullopt;
}

const uint64_t PrimaryHandle = 1, CurrentHandle = 2;

Id spaceOf(const CallBase &Switch, const Facts &Known) {
    const Value *Handle = Switch.getArgOperand(0)->stripPointerCasts();
    if (auto Number = constantHandle(Handle))
        return *Number == PrimaryHandle && !Known.AttachesToPrimary ? Primary : (Id)&Switch;
    return Handle;
}

Reading readingOf(const CallBase &Switch) {
    if (calleeName(Switch) == "vas_switch" || Switch.arg_size() < 2)
        return Reading::Never;
    auto *Access = dyn_cast<ConstantInt>(Switch.getArgOperand(1));
    if (!Access)
        return Reading::Perhaps;
    return Access->getZExtValue() == 1 ? Reading::Always : Reading::Never;
}

// Whether `Condition` being `Value` shows that the call returned 0.
bool showsSuccess(llvm::Value *Condition, bool Value, const CallBase *Call) {
    using namespace PatternMatch;
    llvm::Value *A, *B;
    if (match(Condition, m_Not(m_Value(A))))
        return showsSuccess(A, !Value, Call);
    if (match(Condition, m_LogicalAnd(m_Value(A), m_Value(B))))
        return Value && (showsSuccess(A, true, Call) || showsSuccess(B, true, Call));
    if (match(Condition, m_LogicalOr(m_Value(A), m_Value(B))))
        return !Value && (showsSuccess(A, false, Call) || showsSuccess(B, false, Call));
    auto *Compare = dyn_cast<ICmpInst>(Condition);
    if (!Compare || Compare->getOperand(0) != Call)
        return false;
    auto *With = dyn_cast<ConstantInt>(Compare->getOperand(1));
    if (!With)
        return false;
    // It returns 0 or -1.
    switch (Value ? Compare->getPredicate() : Compare->getInversePredicate()) {
    case ICmpInst::ICMP_EQ:
        return With->isZero();
    case ICmpInst::ICMP_NE:
        return With->isMinusOne();
    case ICmpInst::ICMP_SGE:
        return With->isZero();
    case ICmpInst::ICMP_SGT:
        return With->isMinusOne();
    default:
        return false;
    }
}

class Analysis {
public:
    Analysis(Function &F, Facts &Known) : F(F), Known(Known), Tree(F), Library(Known.Library(F)) {
        findSpaces();
        findPointers();
    }

    const State &before(const Instruction *I) const { return In.find(I)->second; }

    State after(const Instruction &I) const {
        State S = before(&I);
        transfer(I, S);
        return S;
    }

    const Set &valid(const Value *V) {
        auto Found = Valid.find(V);
        return Found != Valid.end() ? Found->second : Valid[V] = ofOther(V);
    }

    bool mayBeReached(const Instruction *I) const { return In.count(I); }

    bool isSafe(const Value *P, const Instruction &I, bool Writes) {
        const State &S = before(&I);
        bool IsCommon = true;
        for (Id V : valid(P)) {
            if (V == Common)
                continue;
            if (V != S.Space || Known.Detaches)
                return false;
            IsCommon = false;
        }
        return IsCommon || !Writes || S.Only == Reading::Never;
    }

    // Why following the pointer is wrong whatever happens; empty if it is not. Two handles may be
    // of one space: only of the primary one it is certain that it is another.
    std::string whyWrong(const Value *P, const Instruction &I, bool Writes) {
        const State &S = before(&I);
        Id Of = certain(valid(P));
        if (!Of)
            return "";
        if (S.Space == Primary && Of != Primary)
            return "a pointer into a segment is followed outside of every space";
        if (Writes && Of == S.Space && S.Only == Reading::Always)
            return "a segment that was entered for reading is written";
        return "";
    }

    bool isStoreSafe(const Value *P, const Value *Stored) {
        Id One = nullptr;
        for (Id V : valid(Stored)) {
            if (V == Common || V == Unknown || Known.Detaches || (One && V != One))
                return isOnly(valid(P), Common);
            One = V;
        }
        for (Id V : valid(P))
            if (V != Common && V != One && One)
                return false;
        return true;
    }

    bool isStoreWrong(const Value *P, const Value *Stored) {
        return certain(valid(P)) && isOnly(valid(Stored), Common);
    }

    // Whether the thread may be in another space after the instruction.
    bool maySwitch(const Instruction &I) const {
        auto *Call = dyn_cast<CallBase>(&I);
        if (!Call || isa<IntrinsicInst>(I) || Call->isInlineAsm() || Call->doesNotReturn())
            return false;
        const Function *G = Call->getCalledFunction();
        if (!G)
            return true;
        if (isSwitch(G->getName()) || isReentry(G->getName()))
            return true;
        if (G->hasExactDefinition())
            return Known.Functions.lookup(G).Switches;
        if (!isLibrary(*G))
            return true;
        // What a library calls back.
        for (const Use &Argument : Call->args())
            if (auto *Back = dyn_cast<Function>(Argument->stripPointerCasts()))
                if (!Back->hasExactDefinition() || Known.Functions.lookup(Back).Switches)
                    return G->getName() != "pthread_create" && G->getName() != "atexit" &&
                           G->getName() != "__cxa_atexit";
        return false;
    }

    bool isLibrary(const Function &G) const {
        LibFunc Which;
        return isOfMneme(G.getName()) || isOfStandardLibrary(G.getName()) ||
               Library.getLibFunc(G, Which);
    }

    // A function of C's library, by name.
    std::optional<LibFunc> libraryFunction(const Instruction &I) const {
        LibFunc Which;
        auto *Call = dyn_cast<CallBase>(&I);
        if (Call && Call->getCalledFunction() && !isa<IntrinsicInst>(I) &&
            Library.getLibFunc(*Call->getCalledFunction(), Which))
            return Which;
        return std::nullopt;
    }

    const DominatorTree &tree() const { return Tree; }

private:
    Function &F;
    Facts &Known;
    DominatorTree Tree;
    const TargetLibraryInfo &Library;
    DenseMap<const BasicBlock *, State> Begin, End;
    DenseMap<const Instruction *, State> In;
    DenseMap<const Value *, Set> Valid;

    // A name that is made anew in each turn of a loop is one name only where it dominates.
    bool isKnownIn(Id Name, const BasicBlock *B) const {
        if (Name == Common || Name == Unknown || Name == Primary || Name == AtExit)
            return true;
        auto *V = static_cast<const Value *>(Name);
        if (auto *Block = dyn_cast<BasicBlock>(V))
            return Tree.dominates(Block, B);
        if (auto *I = dyn_cast<Instruction>(V))
            return Tree.dominates(I, B);
        return true;
    }

    State onEdge(const BasicBlock *From, const BasicBlock *To) const {
        State S = End.lookup(From);
        if (!S.Pending)
            return S;
        const Instruction *T = From->getTerminator();
        bool Succeeded = false;
        if (auto *Branch = dyn_cast<BranchInst>(T); Branch && Branch->isConditional()) {
            bool Both = Branch->getSuccessor(0) == Branch->getSuccessor(1);
            bool Value = Branch->getSuccessor(0) == To;
            Succeeded = !Both && showsSuccess(Branch->getCondition(), Value, S.Pending);
        } else if (auto *Choice = dyn_cast<SwitchInst>(T)) {
            if (Choice->getCondition() == S.Pending && Choice->getDefaultDest() != To) {
                Succeeded = true;
                for (auto &Case : Choice->cases())
                    if (Case.getCaseSuccessor() == To && !Case.getCaseValue()->isZero())
                        Succeeded = false;
            }
        }
        if (Succeeded) {
            S.Space = spaceOf(*S.Pending, Known);
            S.Pending = nullptr;
        }
        return S;
    }

    void transfer(const Instruction &I, State &S) const {
        if (!maySwitch(I))
            return;
        auto &Call = cast<CallBase>(I);
        S = State{&I, Reading::Never, nullptr};
        if (!isSwitch(calleeName(I)))
            return;
        S.Only = readingOf(Call);
        Id Space = spaceOf(Call, Known);
        // Leaving cannot fail. Where nobody looks at the result, a check does.
        if (Space == Primary || (Call.use_empty() && !isa<InvokeInst>(I)))
            S.Space = Space;
        else
            S.Pending = &Call;
    }

    void findSpaces() {
        ReversePostOrderTraversal<Function *> Order(&F);
        const Summary &Own = Known.Functions[&F];
        State Entry{F.getName() == "main" ? Primary : (Id)&F, Own.Entry, nullptr};
        bool Changed = true;
        for (unsigned Round = 0; Changed; Round++) {
            Changed = false;
            for (BasicBlock *B : Order) {
                State S = B->isEntryBlock() ? Entry : meet(B, Round);
                Begin[B] = S;
                for (Instruction &I : *B) {
                    In[&I] = S;
                    transfer(I, S);
                }
                if (!(End.lookup(B) == S)) {
                    End[B] = S;
                    Changed = true;
                }
            }
        }
    }

    State meet(BasicBlock *B, unsigned Round) const {
        State S;
        for (const BasicBlock *From : predecessors(B)) {
            State Other = onEdge(From, B);
            if (!Other.Space)
                continue; // Not reached yet.
            if (!S.Space) {
                S = Other;
                continue;
            }
            if (S.Space != Other.Space)
                S.Space = B;
            if (S.Only != Other.Only)
                S.Only = Reading::Perhaps;
            if (S.Pending != Other.Pending)
                S.Pending = nullptr;
        }
        // Few rounds decide; a name of the block's own is always right.
        if (!isKnownIn(S.Space, B) || Round > 64)
            S.Space = B;
        if (S.Pending && (S.Space == B || !isKnownIn(S.Pending, B)))
            S.Pending = nullptr;
        return S;
    }

    // Of what is no instruction.
    Set ofOther(const Value *V) {
        if (isa<ConstantPointerNull>(V) || isa<UndefValue>(V))
            return {};
        if (auto *A = dyn_cast<Argument>(V)) {
            if (A->hasByValAttr())
                return {Common};
            if (F.getName() == "main")
                return {Common};
            const Summary &Own = Known.Functions[&F];
            return Own.CallersAreKnown ? Own.Arguments[A->getArgNo()] : Set{Unknown};
        }
        if (isa<GlobalValue>(V) || isa<BlockAddress>(V))
            return {Common};
        if (auto *E = dyn_cast<ConstantExpr>(V); E && E->getOpcode() == Instruction::GetElementPtr)
            return valid(E->getOperand(0));
        if (isa<Instruction>(V))
            return {};
        return {Unknown};
    }

    // Of a space that may lose segments at any time nothing is known for long.
    Set ofCurrent(const State &S) const {
        return S.Space == Primary || Known.Detaches ? Set{Unknown} : Set{S.Space};
    }

    Set ofLoad(const LoadInst &Load) {
        const Set &From = valid(Load.getPointerOperand());
        if (From.empty())
            return {};
        if (isOnly(From, Common)) {
            const Value *From = Load.getPointerOperand()->stripInBoundsOffsets();
            return {isOfTheSystem(*From) ? Common : Unknown};
        }
        // The object was made by this process: its table was refused elsewhere.
        if (auto *Kind = Load.getMetadata(LLVMContext::MD_tbaa))
            if (Kind->isTBAAVtableAccess())
                return {Common};
        if (From.count(Common) || From.count(Unknown))
            return {Unknown};
        return ofCurrent(before(&Load));
    }

    // Whether what is loaded from there certainly leads into the process' own memory: tables of
    // constants, the C library's streams, a program's arguments.
    bool isOfTheSystem(const Value &From) const {
        if (auto *Variable = dyn_cast<GlobalVariable>(&From))
            return Variable->hasInitializer()
                       ? Variable->isConstant()
                       : StringSwitch<bool>(Variable->getName())
                             .Cases("stdin", "stdout", "stderr", "environ", true)
                             .Default(false);
        return isa<Argument>(From) && F.getName() == "main";
    }

    Set ofCall(const CallBase &Call) {
        StringRef Name = calleeName(Call);
        if (Name == "vas_cast") {
            Id Space = Call.getArgOperand(1)->stripPointerCasts();
            return {constantHandle(static_cast<const Value *>(Space)) ? Unknown : Space};
        }
        if (isSegmentAllocator(Name))
            return ofCurrent(before(&Call));
        if (const Value *Returned = Call.getReturnedArgOperand())
            return valid(Returned);
        const Function *G = Call.getCalledFunction();
        if (!G)
            return {Unknown};
        if (G->hasExactDefinition()) {
            Set Result;
            for (Id Name : Known.Functions.lookup(G).Result)
                Result.insert(Name == AtExit ? after(Call).Space : Name);
            if (Known.Detaches || Result.count(Primary))
                return {Unknown};
            return Result;
        }
        if (Name == "mneme_error" || G->returnDoesNotAlias() || Name.starts_with("_Znw") ||
            Name.starts_with("_Zna") || Name.starts_with("__cxa_"))
            return {Common};
        if (auto Which = libraryFunction(Call)) {
            switch (*Which) {
            case LibFunc_malloc:
            case LibFunc_calloc:
            case LibFunc_realloc:
            case LibFunc_aligned_alloc:
            case LibFunc_strdup:
            case LibFunc_strndup:
            case LibFunc_getenv:
            case LibFunc_fopen:
                return {Common};
            case LibFunc_strchr:
            case LibFunc_strrchr:
            case LibFunc_strstr:
            case LibFunc_memchr:
            case LibFunc_strcpy:
            case LibFunc_strcat:
            case LibFunc_strncpy:
            case LibFunc_memcpy:
                return valid(Call.getArgOperand(0));
            default:
                return {Unknown};
            }
        }
        return {Unknown};
    }

    Set ofInstruction(const Instruction &I) {
        if (isa<AllocaInst>(I))
            return {Common};
        if (auto *G = dyn_cast<GetElementPtrInst>(&I))
            return valid(G->getPointerOperand());
        if (auto *L = dyn_cast<LoadInst>(&I))
            return ofLoad(*L);
        if (auto *C = dyn_cast<CallBase>(&I))
            return ofCall(*C);
        if (isa<FreezeInst>(I) || isa<AddrSpaceCastInst>(I))
            return valid(I.getOperand(0));
        if (auto *S = dyn_cast<SelectInst>(&I)) {
            Set Both = valid(S->getTrueValue());
            join(Both, valid(S->getFalseValue()));
            return Both;
        }
        if (auto *P = dyn_cast<PHINode>(&I)) {
            Set All;
            for (const Value *V : P->incoming_values())
                for (Id Name : valid(V))
                    All.insert(isKnownIn(Name, P->getParent()) ? Name : Unknown);
            return All;
        }
        return {Unknown};
    }

    void findPointers() {
        for (bool Changed = true; Changed;) {
            Changed = false;
            for (Instruction &I : instructions(F)) {
                if (!I.getType()->isPtrOrPtrVectorTy() || !mayBeReached(&I))
                    continue;
                Set Of = I.getType()->isPointerTy() ? ofInstruction(I) : Set{Unknown};
                Changed |= join(Valid[&I], Of);
            }
        }
    }
};

// An access, or a pointer that is stored, for which a check runs.
struct Check {
    Instruction *At;
    Value *Pointer;
    Value *Stored; // Null: the pointer is followed.
    bool Writes;
};

struct Followed {
    Value *Pointer;
    bool Writes;
};

// Arguments of printf() and its relatives that are followed: the format, and what it calls strings.
void followedByFormat(CallBase &Call, unsigned Format, SmallVectorImpl<Followed> &All) {
    StringRef Text;
    if (Format >= Call.arg_size() || !getConstantStringInfo(Call.getArgOperand(Format), Text))
        return;
    unsigned Next = Format + 1;
    for (size_t At = 0; At < Text.size(); At++) {
        if (Text[At] != '%')
            continue;
        At = Text.find_first_of("diouxXeEfFgGaAcspn%", At + 1);
        if (At == StringRef::npos)
            return;
        if (Text[At] == '%')
            continue;
        // Widths and precisions that are arguments.
        for (size_t Back = At - 1; Text[Back] != '%'; Back--)
            Next += Text[Back] == '*';
        if (Next >= Call.arg_size())
            return;
        if (Text[At] == 's' && Call.getArgOperand(Next)->getType()->isPointerTy())
            All.push_back({Call.getArgOperand(Next), false});
        Next++;
    }
}

// The pointers that an instruction follows.
SmallVector<Followed, 2> followedBy(Instruction &I, const Analysis &A) {
    SmallVector<Followed, 2> All;
    if (auto *L = dyn_cast<LoadInst>(&I))
        All.push_back({L->getPointerOperand(), false});
    else if (auto *S = dyn_cast<StoreInst>(&I))
        All.push_back({S->getPointerOperand(), true});
    else if (auto *R = dyn_cast<AtomicRMWInst>(&I))
        All.push_back({R->getPointerOperand(), true});
    else if (auto *X = dyn_cast<AtomicCmpXchgInst>(&I))
        All.push_back({X->getPointerOperand(), true});
    else if (auto *M = dyn_cast<MemIntrinsic>(&I)) {
        All.push_back({M->getRawDest(), true});
        if (auto *T = dyn_cast<MemTransferInst>(M))
            All.push_back({T->getRawSource(), false});
    } else if (auto Which = A.libraryFunction(I)) {
        auto &Call = cast<CallBase>(I);
        if (*Which == LibFunc_free || Call.getCalledFunction()->hasExactDefinition() ||
            calleeName(I).starts_with("_Zd"))
            return All;
        for (unsigned N = 0; N < Call.getFunctionType()->getNumParams(); N++)
            if (Call.getArgOperand(N)->getType()->isPointerTy())
                All.push_back({Call.getArgOperand(N), false});
        if (Call.getFunctionType()->isVarArg())
            followedByFormat(Call, Call.getFunctionType()->getNumParams() - 1, All);
    }
    return All;
}

// The pointer that an instruction leaves in memory.
Value *storedBy(Instruction &I) {
    Value *V = nullptr;
    if (auto *S = dyn_cast<StoreInst>(&I))
        V = S->getValueOperand();
    else if (auto *R = dyn_cast<AtomicRMWInst>(&I))
        V = R->getValOperand();
    else if (auto *X = dyn_cast<AtomicCmpXchgInst>(&I))
        V = X->getNewValOperand();
    // Atomic operations take a pointer as an integer.
    Value *Pointer;
    if (V && PatternMatch::match(V, PatternMatch::m_PtrToInt(PatternMatch::m_Value(Pointer))))
        V = Pointer;
    return V && V->getType()->isPtrOrPtrVectorTy() ? V : nullptr;
}

// The tags of a function's pointers, made where they are asked for.
class Tags {
public:
    Tags(Module &M, Analysis &A) : A(A), Ptr(PointerType::getUnqual(M.getContext())) {
        auto *Void = Type::getVoidTy(M.getContext());
        auto *Int = Type::getInt32Ty(M.getContext());
        Current = M.getOrInsertFunction("vas_current", Ptr);
        Load = M.getOrInsertFunction("__mneme_tag_load", Ptr, Ptr, Ptr);
        Store = M.getOrInsertFunction("__mneme_tag_store", Void, Ptr, Ptr, Ptr);
        auto *Size = Type::getInt64Ty(M.getContext());
        Forget = M.getOrInsertFunction("__mneme_tag_forget", Void, Ptr, Size);
        Copy = M.getOrInsertFunction("__mneme_tag_copy", Void, Ptr, Ptr, Size);
        Pass = M.getOrInsertFunction("__mneme_tag_pass", Void, Int, Ptr, Ptr, Ptr);
        Passed = M.getOrInsertFunction("__mneme_tag_passed", Ptr, Int, Ptr, Ptr);
    }

    // The handle, or null where nothing is known.
    Value *of(Value *V) {
        if (!V->getType()->isPointerTy() || isOnly(A.valid(V), Common))
            return none();
        if (Value *Made = Known.lookup(V))
            return Made;
        if (auto *P = dyn_cast<PHINode>(V)) {
            auto *Tag = PHINode::Create(Ptr, P->getNumIncomingValues(), "tag", P->getIterator());
            Known[V] = Tag; // Loops lead back to it.
            for (unsigned N = 0; N < P->getNumIncomingValues(); N++)
                Tag->addIncoming(of(P->getIncomingValue(N)), P->getIncomingBlock(N));
            return Tag;
        }
        return Known[V] = make(V);
    }

    // The tag of a number that is stored, if it is a pointer that was loaded as a number: the
    // compiler copies small structures that way.
    Value *ofNumber(Value *V, Value *&Pointer) {
        auto *From = dyn_cast<LoadInst>(V);
        if (!From || !From->getType()->isIntegerTy(64) || From->isVolatile())
            return nullptr;
        IRBuilder<> B(From->getNextNode());
        Pointer = B.CreateIntToPtr(From, Ptr);
        return B.CreateCall(Load, {From->getPointerOperand(), Pointer});
    }

    // What the instruction does to tags in the process' own memory.
    void follow(Instruction &I) {
        if (auto *S = dyn_cast<StoreInst>(&I)) {
            Value *V = S->getValueOperand(), *To = S->getPointerOperand(), *Pointer = V;
            if (certain(A.valid(To)))
                return;
            IRBuilder<> B(S);
            Value *Tag = V->getType()->isPointerTy() ? of(V) : ofNumber(V, Pointer);
            if (Tag)
                B.CreateCall(Store, {To, Pointer, Tag});
            else
                forget(B, To, V->getType(), I);
        } else if (isa<AtomicRMWInst>(I) || isa<AtomicCmpXchgInst>(I)) {
            IRBuilder<> B(&I);
            forget(B, I.getOperand(0), I.getOperand(1)->getType(), I);
        } else if (auto *T = dyn_cast<MemTransferInst>(&I)) {
            IRBuilder<> B(T);
            Value *Length = B.CreateZExtOrTrunc(T->getLength(), B.getInt64Ty());
            B.CreateCall(Copy, {T->getRawDest(), T->getRawSource(), Length});
        } else if (auto Which = A.libraryFunction(I);
                   Which && (*Which == LibFunc_memcpy || *Which == LibFunc_memmove)) {
            IRBuilder<> B(&I);
            B.CreateCall(Copy, {I.getOperand(0), I.getOperand(1), I.getOperand(2)});
        } else if (auto *Call = dyn_cast<CallBase>(&I)) {
            pass(*Call);
        } else if (auto *Return = dyn_cast<ReturnInst>(&I)) {
            Value *V = Return->getReturnValue();
            if (!V || !V->getType()->isPointerTy() || isOnly(A.valid(V), Common))
                return;
            Value *Tag = of(V);
            if (auto *Made = dyn_cast<CallInst>(V); Made && Made->isMustTailCall())
                return;
            IRBuilder<> B(Return);
            B.CreateCall(Pass, {B.getInt32(0), I.getFunction(), V, Tag});
        }
    }

private:
    Analysis &A;
    PointerType *Ptr;
    FunctionCallee Current, Load, Store, Forget, Copy, Pass, Passed;
    DenseMap<Value *, Value *> Known;
    static const unsigned Arguments = 7; // Of which the runtime has a place for each, behind the result's.

    Value *none() { return ConstantPointerNull::get(Ptr); }

    void forget(IRBuilder<> &B, Value *To, Type *What, Instruction &I) {
        uint64_t Bytes = I.getModule()->getDataLayout().getTypeStoreSize(What);
        if (Bytes >= 8 && !What->isFPOrFPVectorTy())
            B.CreateCall(Forget, {To, B.getInt64(Bytes)});
    }

    void pass(CallBase &Call) {
        const Function *G = Call.getCalledFunction();
        if (isa<IntrinsicInst>(Call) || Call.isInlineAsm() || (G && A.isLibrary(*G)))
            return;
        if (auto *Tail = dyn_cast<CallInst>(&Call); Tail && Tail->isMustTailCall())
            return;
        for (unsigned N = 0; N < Call.arg_size() && N < Arguments; N++) {
            Value *V = Call.getArgOperand(N);
            if (!V->getType()->isPointerTy() || isOnly(A.valid(V), Common))
                continue;
            Value *Tag = of(V);
            IRBuilder<> B(&Call);
            B.CreateCall(Pass, {B.getInt32(N + 1), Call.getCalledOperand(), V, Tag});
        }
    }

    // Where something can stand that runs right behind it.
    static Instruction *behind(Instruction &I) {
        if (auto *Invoke = dyn_cast<InvokeInst>(&I)) {
            BasicBlock *To = Invoke->getNormalDest();
            return To->getSinglePredecessor() ? &*To->getFirstInsertionPt() : nullptr;
        }
        return I.isTerminator() ? nullptr : I.getNextNode();
    }

    Value *make(Value *V) {
        if (auto *Argument = dyn_cast<llvm::Argument>(V)) {
            Function &F = *Argument->getParent();
            if (Argument->getArgNo() >= Arguments || F.getName() == "main")
                return none();
            IRBuilder<> B(&*F.getEntryBlock().getFirstInsertionPt());
            return B.CreateCall(Passed, {B.getInt32(Argument->getArgNo() + 1), &F, Argument});
        }
        auto *I = dyn_cast<Instruction>(V);
        if (!I)
            return none();
        if (auto *G = dyn_cast<GetElementPtrInst>(I))
            return of(G->getPointerOperand());
        if (isa<FreezeInst>(I))
            return of(I->getOperand(0));
        if (auto *S = dyn_cast<SelectInst>(I)) {
            Value *One = of(S->getTrueValue()), *Other = of(S->getFalseValue());
            IRBuilder<> B(S);
            return B.CreateSelect(S->getCondition(), One, Other);
        }
        Instruction *Next = behind(*I);
        if (!Next)
            return none();
        IRBuilder<> B(Next);
        if (auto *L = dyn_cast<LoadInst>(I))
            return B.CreateCall(Load, {L->getPointerOperand(), L});
        auto *Call = dyn_cast<CallBase>(I);
        return Call ? ofCall(*Call, B) : none();
    }

    Value *ofCall(CallBase &Call, IRBuilder<> &B) {
        StringRef Name = calleeName(Call);
        if (Name == "vas_cast")
            return constantHandle(Call.getArgOperand(1)) ? none() : Call.getArgOperand(1);
        if (isSegmentAllocator(Name))
            return B.CreateCall(Current);
        if (Value *Returned = Call.getReturnedArgOperand())
            return of(Returned);
        const Function *G = Call.getCalledFunction();
        if (G && A.isLibrary(*G)) {
            // What it finds in what it is given.
            bool IsWithin = Call.arg_size() != 0 && Call.getArgOperand(0)->getType()->isPointerTy() &&
                            A.libraryFunction(Call);
            return IsWithin ? of(Call.getArgOperand(0)) : none();
        }
        if (isa<IntrinsicInst>(Call) || Call.isInlineAsm())
            return none();
        return B.CreateCall(Passed, {B.getInt32(0), Call.getCalledOperand(), &Call});
    }
};

class Instrument {
public:
    explicit Instrument(Module &M, Facts &Known) : M(M), Known(Known) {
        auto *Ptr = PointerType::getUnqual(M.getContext());
        auto *Void = Type::getVoidTy(M.getContext());
        auto *Int = Type::getInt32Ty(M.getContext());
        Read = M.getOrInsertFunction("__mneme_check_read", Void, Ptr, Ptr);
        Write = M.getOrInsertFunction("__mneme_check_write", Void, Ptr, Ptr);
        Store = M.getOrInsertFunction("__mneme_check_store", Void, Ptr, Ptr, Ptr);
        Switched = M.getOrInsertFunction("__mneme_check_switched", Void, Int, Ptr);
        Clone = M.getOrInsertFunction("__mneme_check_clone", Void, Ptr, Ptr, Ptr, Ptr);
    }

    void run(Function &F) {
        Analysis A(F, Known);
        std::vector<Check> Checks;
        std::vector<CallBase *> Ignored;
        std::vector<Instruction *> OfTags;
        // Accesses that were checked, by what decides: the object, the space, whether it writes.
        std::map<std::tuple<const Value *, Id, bool>, std::vector<Instruction *>> Done;
        for (Instruction &I : instructions(F)) {
            if (!A.mayBeReached(&I))
                continue;
            if (isSwitch(calleeName(I)) && I.use_empty() && isa<CallInst>(I) &&
                A.after(I).Space != Primary)
                Ignored.push_back(cast<CallBase>(&I));
            OfTags.push_back(&I);
            for (auto [P, Writes] : followedBy(I, A)) {
                Accesses++;
                std::string Why = A.whyWrong(P, I, Writes);
                if (!Why.empty())
                    warn(I, Why);
                if (!CheckAll && A.isSafe(P, I, Writes))
                    continue;
                const Value *Object = P->stripInBoundsOffsets();
                auto covers = [&](Instruction *Before) { return A.tree().dominates(Before, &I); };
                auto &Same = Done[{Object, A.before(&I).Space, Writes}];
                auto &Stronger = Done[{Object, A.before(&I).Space, true}];
                if (!CheckAll && (any_of(Same, covers) || any_of(Stronger, covers)))
                    continue;
                Same.push_back(&I);
                Checks.push_back({&I, P, nullptr, Writes});
            }
            if (Value *Stored = storedBy(I)) {
                Value *P = const_cast<Value *>(getLoadStorePointerOperand(&I));
                if (!P)
                    P = I.getOperand(0);
                if (A.isStoreWrong(P, Stored))
                    warn(I, "a pointer to the process' own memory" + nameOf(Stored) +
                                " is stored in a segment");
                if (CheckAll || !A.isStoreSafe(P, Stored))
                    Checks.push_back({&I, P, Stored, true});
            }
        }
        Tags Tagged(M, A);
        if (Clones)
            for (Instruction *I : OfTags)
                Tagged.follow(*I);
        for (const Check &C : Checks)
            insert(C, Tagged);
        for (CallBase *Call : Ignored) {
            IRBuilder<> B(Call->getNextNode());
            B.SetCurrentDebugLocation(Call->getDebugLoc());
            B.CreateCall(Switched, {Call, site(*Call)});
        }
        Inserted += Checks.size();
    }

    void report() const {
        if (Count)
            errs() << PassName << ": " << M.getSourceFileName() << ": " << Accesses << " accesses, "
                   << Inserted << " checks\n";
    }

private:
    Module &M;
    Facts &Known;
    FunctionCallee Read, Write, Store, Switched, Clone;
    std::map<std::string, Constant *> Sites;
    size_t Accesses = 0, Inserted = 0;

    // `file:line: in function`, as far as the compiler knows.
    static std::string place(const Instruction &I) {
        const DILocation *At = I.getDebugLoc();
        if (!At)
            return I.getModule()->getSourceFileName() + ": in " + I.getFunction()->getName().str();
        // The function of the source, which may be inlined here.
        StringRef Function = At->getScope()->getSubprogram()->getName();
        return (At->getFilename() + ":" + Twine(At->getLine()) + ": in " + Function).str();
    }

    Constant *site(const Instruction &I) {
        std::string Text = place(I);
        Constant *&Known = Sites[Text];
        if (!Known) {
            IRBuilder<> B(M.getContext());
            Known = B.CreateGlobalString(Text, "mneme.site", 0, &M);
        }
        return Known;
    }

    void insert(const Check &C, Tags &Tagged) {
        IRBuilder<> B(C.At);
        B.SetCurrentDebugLocation(C.At->getDebugLoc());
        Constant *Where = site(*C.At);
        Value *Used = C.Stored ? C.Stored : C.Pointer;
        if (!C.Stored)
            B.CreateCall(C.Writes ? Write : Read, {C.Pointer, Where});
        if (Clones && Used->getType()->isPointerTy() && !isa<Constant>(Used))
            // A pointer that is only stored may lie in the process' own memory.
            B.CreateCall(Clone, {C.Pointer, Used, Tagged.of(Used), Where});
        if (!C.Stored)
            return;
        auto *Several = dyn_cast<FixedVectorType>(C.Stored->getType());
        if (!Several) {
            B.CreateCall(Store, {C.Pointer, C.Stored, Where});
            return;
        }
        for (unsigned N = 0; N < Several->getNumElements(); N++)
            B.CreateCall(Store, {C.Pointer, B.CreateExtractElement(C.Stored, N), Where});
    }

    static std::string nameOf(const Value *V) {
        V = V->stripInBoundsOffsets();
        return isa<GlobalValue>(V) ? " (" + demangle(V->getName()) + ")" : "";
    }

    void warn(Instruction &I, const std::string &Why) {
        DiagnosticInfoOptimizationFailure Warning(PassName, "", I.getDebugLoc(), I.getParent());
        Warning << "in " << I.getFunction()->getName() << ": " << Why;
        M.getContext().diagnose(Warning);
    }
};

class MnemeCheck : public PassInfoMixin<MnemeCheck> {
public:
    explicit MnemeCheck(bool IsUnoptimized) : IsUnoptimized(IsUnoptimized) {}
    static bool isRequired() { return true; }

    PreservedAnalyses run(Module &M, ModuleAnalysisManager &Manager) {
        auto &Functions = Manager.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager();
        std::vector<Function *> Ours;
        for (Function &F : M) {
            if (F.isDeclaration() || F.hasAvailableExternallyLinkage())
                continue;
            // Variables that are in memory only because nothing was optimised.
            if (IsUnoptimized)
                Functions.invalidate(F, SROAPass(SROAOptions::PreserveCFG).run(F, Functions));
            Ours.push_back(&F);
        }
        Facts Known;
        Known.Library = [&](Function &F) -> const TargetLibraryInfo & {
            return Functions.getResult<TargetLibraryAnalysis>(F);
        };
        collect(Ours, Known);
        summarize(Ours, Known);
        Instrument Checks(M, Known);
        for (Function *F : Ours)
            if (!F->hasFnAttribute(Attribute::DisableSanitizerInstrumentation))
                Checks.run(*F);
        Checks.report();
        return PreservedAnalyses::none();
    }

private:
    bool IsUnoptimized;

    static void collect(ArrayRef<Function *> Ours, Facts &Known) {
        for (Function *F : Ours) {
            Summary &S = Known.Functions[F];
            S.Arguments.resize(F->arg_size());
            S.CallersAreKnown = F->hasLocalLinkage() && !F->hasAddressTaken();
            for (Instruction &I : instructions(F)) {
                StringRef Name = calleeName(I);
                Known.Detaches |= Name.starts_with("seg_detach_");
                if (Name == "seg_attach_handle") {
                    auto Handle = constantHandle(cast<CallBase>(I).getArgOperand(0));
                    Known.AttachesToPrimary |= !Handle || *Handle == CurrentHandle;
                }
            }
        }
    }

    // What functions do to the space and return, and what their callers pass, until it is all of
    // it.
    static void summarize(ArrayRef<Function *> Ours, Facts &Known) {
        for (bool Changed = true; Changed;) {
            Changed = false;
            for (Function *F : Ours) {
                Analysis A(*F, Known);
                for (Instruction &I : instructions(F))
                    if (A.mayBeReached(&I))
                        Changed |= note(I, *F, A, Known);
            }
        }
    }

    static bool note(Instruction &I, Function &F, Analysis &A, Facts &Known) {
        bool Changed = false;
        if (A.maySwitch(I) && !Known.Functions[&F].Switches)
            Changed = Known.Functions[&F].Switches = true;
        if (auto *Return = dyn_cast<ReturnInst>(&I)) {
            const Value *V = Return->getReturnValue();
            if (!V || !V->getType()->isPointerTy())
                return Changed;
            Set Result;
            for (Id Name : A.valid(V))
                Result.insert(Name == Common               ? Common
                              : Name == A.before(&I).Space ? AtExit
                                                           : Unknown);
            return join(Known.Functions[&F].Result, Result) || Changed;
        }
        auto *Call = dyn_cast<CallBase>(&I);
        Function *G = Call ? Call->getCalledFunction() : nullptr;
        if (!G || G->isDeclaration() || !Known.Functions[G].CallersAreKnown)
            return Changed;
        Summary &Callee = Known.Functions[G];
        const State &S = A.before(&I);
        Reading Entry = !Callee.IsCalled || Callee.Entry == S.Only ? S.Only : Reading::Perhaps;
        Changed |= !Callee.IsCalled || Entry != Callee.Entry;
        Callee.IsCalled = true;
        Callee.Entry = Entry;
        for (unsigned N = 0; N < Callee.Arguments.size() && N < Call->arg_size(); N++) {
            const Value *V = Call->getArgOperand(N);
            if (!V->getType()->isPointerTy())
                continue;
            Set Passed;
            for (Id Name : A.valid(V))
                Passed.insert(Name == Common ? Common : Name == S.Space ? (Id)G : Unknown);
            Changed |= join(Callee.Arguments[N], Passed);
        }
        return Changed;
    }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, PassName, "1", [](PassBuilder &Builder) {
                Builder.registerOptimizerLastEPCallback(
                    [](ModulePassManager &Passes, OptimizationLevel Level) {
                        Passes.addPass(MnemeCheck(Level == OptimizationLevel::O0));
                    });
            }};
}
