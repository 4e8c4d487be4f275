/*
 * A guest of its own under /dev/kvm, without an operating system: 64-bit code, and two roots of page tables that show the
 * same window. It reads random pages there, and loads the other root between two reads: never, with CR3 alone, or with
 * CR3's tag (PCID), so that the TLB keeps what it has.
 *
 * `guest READS`: prints "pcid 0" or "pcid 1", then "HOW PAGES CYCLES" for each case. Cycles are the time stamp counter's.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define MEMORY (64UL << 20)
#define CODE 0x10000UL
#define ARGUMENTS 0x20000UL
#define STACK 0x1ffff8UL
#define TABLES 0x100000UL
#define DATA 0x1000000UL /* 32 MiB: 8192 pages, which the window shows */
#define PRESENT 3UL      /* and writable */
#define HUGE 0x83UL
#define KEEP (1UL << 63) /* of a value for CR3: do not forget what has its tag */
#define CR4_PAE (1UL << 5)
#define CR4_PCIDE (1UL << 17)

enum { NEVER, UNTAGGED, TAGGED };
static const char *const how[] = {"never", "untagged", "tagged"};

struct arguments {
    uint64_t loads_cr3, pages, reads, root, other, cycles;
};

extern const char guest_begin[], guest_end[];

/* r8: whether CR3 is loaded; r9: pages less one; r10: reads; r11, r12: roots; rdi: xorshift, which depends on what was
 * read (zeros), so that reads are one after the other. */
__asm__(".pushsection .rodata\n"
        ".globl guest_begin, guest_end\n"
        "guest_begin:\n"
        "  movl $0x20000, %r15d\n"
        "  movq 0(%r15), %r8\n"
        "  movq 8(%r15), %r9\n"
        "  movq 16(%r15), %r10\n"
        "  movq 24(%r15), %r11\n"
        "  movq 32(%r15), %r12\n"
        "  decq %r9\n"
        "  movl $0x40000000, %esi\n"
        "  movabsq $88172645463325252, %rdi\n"
        "  xorl %ecx, %ecx\n"
        "1: movq %rcx, %rax\n"
        "  shlq $12, %rax\n"
        "  movq (%rsi,%rax), %rax\n"
        "  incq %rcx\n"
        "  cmpq %r9, %rcx\n"
        "  jbe 1b\n"
        "  lfence\n"
        "  rdtsc\n"
        "  shlq $32, %rdx\n"
        "  orq %rdx, %rax\n"
        "  movq %rax, %r13\n"
        "2: testq %r8, %r8\n"
        "  jz 3f\n"
        "  movq %r11, %cr3\n"
        "  xchgq %r11, %r12\n"
        "3: movq %rdi, %rax\n"
        "  shlq $13, %rax\n"
        "  xorq %rax, %rdi\n"
        "  movq %rdi, %rax\n"
        "  shrq $7, %rax\n"
        "  xorq %rax, %rdi\n"
        "  movq %rdi, %rax\n"
        "  shlq $17, %rax\n"
        "  xorq %rax, %rdi\n"
        "  movq %rdi, %rax\n"
        "  andq %r9, %rax\n"
        "  shlq $12, %rax\n"
        "  movq %rdi, %rdx\n"
        "  shrq $40, %rdx\n"
        "  andl $63, %edx\n"
        "  shll $6, %edx\n"
        "  addq %rdx, %rax\n"
        "  xorq (%rsi,%rax), %rdi\n"
        "  decq %r10\n"
        "  jnz 2b\n"
        "  lfence\n"
        "  rdtsc\n"
        "  shlq $32, %rdx\n"
        "  orq %rdx, %rax\n"
        "  subq %r13, %rax\n"
        "  movq %rax, 40(%r15)\n"
        "4: hlt\n"
        "  jmp 4b\n"
        "guest_end:\n"
        ".popsection\n");

static char *memory;
static int cpu;
static struct kvm_run *run;

static void need(const char *what, int holds)
{
    if (holds) return;
    perror(what);
    exit(1);
}

static uint64_t table(unsigned number)
{
    return TABLES + number * 4096UL;
}

static uint64_t *entries(unsigned number)
{
    return (uint64_t *)(memory + table(number));
}

/* Tables 0 and 1 are the roots; 3 and 4 have the low 4 MiB and the window. */
static void lay_out(void)
{
    entries(0)[0] = entries(1)[0] = table(2) | PRESENT;
    entries(2)[0] = table(3) | PRESENT;
    entries(2)[1] = table(4) | PRESENT;
    entries(3)[0] = HUGE;
    entries(3)[1] = 2UL << 20 | HUGE;
    for (unsigned second = 0; second < 16; second++) {
        entries(4)[second] = table(5 + second) | PRESENT;
        for (unsigned third = 0; third < 512; third++)
            entries(5 + second)[third] = (DATA + (second * 512UL + third) * 4096) | PRESENT;
    }
}

static int make(void)
{
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), has_tags = 0;
    need("/dev/kvm", kvm >= 0);
    int machine = ioctl(kvm, KVM_CREATE_VM, 0);
    need("a machine", machine >= 0);
    memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("memory", memory != MAP_FAILED);
    struct kvm_userspace_memory_region region = {.memory_size = MEMORY, .userspace_addr = (uintptr_t)memory};
    need("its memory", ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) == 0);
    cpu = ioctl(machine, KVM_CREATE_VCPU, 0);
    need("a CPU", cpu >= 0);
    run = mmap(NULL, (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
    need("its state", run != MAP_FAILED);
    struct kvm_cpuid2 *features = calloc(1, sizeof *features + 256 * sizeof(struct kvm_cpuid_entry2));
    need("features", features != NULL);
    features->nent = 256;
    need("features", ioctl(kvm, KVM_GET_SUPPORTED_CPUID, features) == 0);
    for (unsigned n = 0; n < features->nent; n++)
        if (features->entries[n].function == 1) has_tags = features->entries[n].ecx >> 17 & 1;
    need("features", ioctl(cpu, KVM_SET_CPUID2, features) == 0);
    free(features);
    lay_out();
    memcpy(memory + CODE, guest_begin, (size_t)(guest_end - guest_begin));
    return has_tags;
}

static double cycles(const struct kvm_sregs *first, int kind, int has_tags, uint64_t pages, uint64_t reads)
{
    struct kvm_sregs state = *first;
    struct kvm_segment code = {.limit = ~0U, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data = {.limit = ~0U, .selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1};
    state.cr3 = table(0);
    state.cr4 = CR4_PAE | (has_tags ? CR4_PCIDE : 0);
    state.cr0 = 0x80050033;
    state.efer = 0x500;
    state.cs = code;
    state.ds = state.es = state.ss = state.fs = state.gs = data;
    need("the CPU's state", ioctl(cpu, KVM_SET_SREGS, &state) == 0);
    struct arguments *at = (struct arguments *)(memory + ARGUMENTS);
    *at = (struct arguments){.loads_cr3 = kind != NEVER, .pages = pages, .reads = reads, .root = table(0), .other = table(1)};
    if (kind == TAGGED) {
        at->root |= 1 | KEEP;
        at->other |= 2 | KEEP;
    }
    struct kvm_regs registers = {.rip = CODE, .rsp = STACK, .rflags = 2};
    need("registers", ioctl(cpu, KVM_SET_REGS, &registers) == 0);
    need("a run", ioctl(cpu, KVM_RUN, 0) == 0 && run->exit_reason == KVM_EXIT_HLT);
    return (double)at->cycles / (double)reads;
}

int main(int count, char **words)
{
    uint64_t reads = count == 2 ? strtoull(words[1], NULL, 10) : 0;
    struct kvm_sregs first;
    if (reads == 0) return 2;
    int has_tags = make();
    need("the CPU's state", ioctl(cpu, KVM_GET_SREGS, &first) == 0);
    printf("pcid %d\n", has_tags);
    for (int kind = NEVER; kind <= (has_tags ? TAGGED : UNTAGGED); kind++)
        for (uint64_t pages = 16; pages <= 4096; pages *= 4)
            printf("%s %lu %.1f\n", how[kind], pages, cycles(&first, kind, has_tags, pages, reads));
    return 0;
}
