import sys,random,time,json
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
R,M,seed,secs=int(sys.argv[1]),int(sys.argv[2]),int(sys.argv[3]),float(sys.argv[4])
rnd=random.Random(seed)
KEYS=['a','b','c','d']
INTS=['0','1','-1','2','-2','3','5','100','-100','9223372036854775807','-9223372036854775808','-9223372036854775807','9223372036854775808','+1',' 1','1 ','01','-0','1.5','abc','','0x10','2147483648','4294967296','-2147483649']
MEM=['','a','b','c','1','2','3','01','-1','9223372036854775807','9223372036854775808','x'*64,'x'*65,'y'*9000,'\x00\xffbin','1.0','127','128','32768','8388608','2147483648',' 1','+1','-0']
TOS=['0.01','0.001','0.02','-1','-0.5','abc','','1e-3','inf','nan','-inf','9223372036854775807','1e400','0x1p-7','0.0001','1e-9',' 0.01','0.01 ','9223372036854775','9223372036854776','+0.01','-0.00001','1e18']
DIR=['LEFT','RIGHT','left','Right','UP','']
def k(): return rnd.choice(KEYS)
def i(): return rnd.choice(INTS[:8]) if rnd.random()<.7 else rnd.choice(INTS)
def m(): return rnd.choice(MEM[:7]) if rnd.random()<.7 else rnd.choice(MEM)
def ms(n=6): return [m() for _ in range(rnd.randint(0,n))]
def ks(n=3): return [k() for _ in range(rnd.randint(0,n))]
def d(): return rnd.choice(DIR[:2]) if rnd.random()<.85 else rnd.choice(DIR)
def junk(c):
    r=rnd.random()
    if r<.04: return c+[m()]
    if r<.07 and len(c)>1: return c[:-1]
    return c
def numk(ks):
    r=rnd.random()
    return [str(len(ks)) if r<.8 else i()]+ks
def opt(name,v,p=.4):
    o=[]
    if rnd.random()<p: o=[name,v()]
    if rnd.random()<.04: o=[name]
    return o
def to(): return rnd.choice(TOS[:3]) if rnd.random()<.6 else rnd.choice(TOS)
G=[]
def g(w,f): G.extend([f]*w)
for w,n in ((3,'LPUSH'),(5,'RPUSH'),(1,'LPUSHX'),(1,'RPUSHX')): g(w,lambda n=n:[n,k()]+ms())
for n in ('LPOP','RPOP'): g(2,lambda n=n:[n,k()]+([i()] if rnd.random()<.5 else []))
g(2,lambda:['LRANGE',k(),i(),i()]); g(1,lambda:['LINDEX',k(),i()]); g(1,lambda:['LLEN',k()])
g(2,lambda:['LSET',k(),i(),m()]); g(2,lambda:['LINSERT',k(),rnd.choice(['BEFORE','AFTER','after','x']),m(),m()])
g(2,lambda:['LREM',k(),i(),m()]); g(2,lambda:['LTRIM',k(),i(),i()])
def lpos():
    o=[opt('RANK',i),opt('COUNT',i),opt('MAXLEN',i)]; rnd.shuffle(o); return ['LPOS',k(),m()]+sum(o,[])
g(3,lpos)
g(2,lambda:['LMOVE',k(),k(),d(),d()]); g(2,lambda:['RPOPLPUSH',k(),k()])
g(2,lambda:['LMPOP']+numk(ks())+[d()]+opt('COUNT',i))
g(1,lambda:['BLPOP']+ks()+[to()]); g(1,lambda:['BRPOP']+ks()+[to()])
g(1,lambda:['BLMOVE',k(),k(),d(),d(),to()]); g(1,lambda:['BRPOPLPUSH',k(),k(),to()])
g(2,lambda:['BLMPOP',to()]+numk(ks())+[d()]+opt('COUNT',i))
g(6,lambda:['SADD',k()]+ms()); g(3,lambda:['SREM',k()]+ms()); g(1,lambda:['SCARD',k()]); g(1,lambda:['SISMEMBER',k(),m()])
g(1,lambda:['SMISMEMBER',k()]+ms()); g(2,lambda:['SMOVE',k(),k(),m()]); g(1,lambda:['SMEMBERS',k()])
g(2,lambda:['SPOP',k(),rnd.choice(['0','100','9223372036854775807']) if rnd.random()<.6 else i()]); g(1,lambda:['SPOP',k()])
g(2,lambda:['SRANDMEMBER',k()]+([rnd.choice(['0','1','2','100','-3','-1','-9223372036854775808','9223372036854775807','abc','1.5','','9223372036854775808'])] if rnd.random()<.6 else []))
for n in ('SINTER','SUNION','SDIFF'): g(1,lambda n=n:[n]+ks())
for n in ('SINTERSTORE','SUNIONSTORE','SDIFFSTORE'): g(2,lambda n=n:[n,k()]+ks())
g(2,lambda:['SINTERCARD']+numk(ks())+opt('LIMIT',i))
g(1,lambda:['SSCAN',k(),rnd.choice(['0','0','abc','-1','99999999999999999999'])]+opt('MATCH',lambda:rnd.choice(['*','a*','[']))+opt('COUNT',lambda:i()))
g(2,lambda:['HSET',k()]+ms(4)); g(1,lambda:['HDEL',k()]+ms(2)); g(2,lambda:['SET',k(),m()]);  g(1,lambda:['GET',k()]); g(1,lambda:['MGET']+ks()); g(1,lambda:['STRLEN',k()]); g(1,lambda:['INCR',k()]); g(1,lambda:['GETDEL',k()]); g(1,lambda:['HGETALL',k()])
g(2,lambda:['DEL']+ks(2)); g(1,lambda:['UNLINK']+ks(2)); g(2,lambda:['TYPE',k()]); g(4,lambda:['OBJECT','ENCODING',k()]); g(1,lambda:['EXISTS']+ks())
g(2,lambda:['RENAME',k(),k()]); g(1,lambda:['RENAMENX',k(),k()]); g(2,lambda:['COPY',k(),k()]+opt('DB',lambda:rnd.choice(['0','1','99','x']),.2)+(['REPLACE'] if rnd.random()<.5 else []))
g(1,lambda:['MOVE',k(),rnd.choice(['1','0','2','99'])]); g(1,lambda:['EXPIRE',k(),rnd.choice(['100','-1','0'])]); g(1,lambda:['PERSIST',k()]); g(1,lambda:['TTL',k()])
g(1,lambda:['SELECT',rnd.choice(['0','1'])]); g(1,lambda:['SWAPDB','0','1']); g(1,lambda:['TOUCH']+ks()); g(1,lambda:['DBSIZE']); g(1,lambda:['RANDOMKEY'] if 0 else ['DBSIZE'])
g(1,lambda:['WATCH']+ks()); g(1,lambda:['KEYS','*']); g(1,lambda:['SCAN','0','TYPE',rnd.choice(['list','set','hash','string'])])
g(1,lambda:['FLUSHDB'])
UNORD={'SMEMBERS','SUNION','SINTER','SDIFF','SSCAN','HGETALL','KEYS','SCAN','SPOP','SRANDMEMBER'}
def norm(c,r):
    n=c[0].upper()
    if n in UNORD and isinstance(r,list):
        if n in('SSCAN','SCAN') and len(r)==3 and isinstance(r[2],list): return [r[0],r[1],r[2][:1]+sorted(map(repr,r[2][1:]))]
        if n=='SPOP' or n=='SRANDMEMBER':
            return [r[0],len(r)]
        return r[:1]+sorted(map(repr,r[1:]))
    if n in('SPOP','SRANDMEMBER') and isinstance(r,bytes): return 'bulk'
    return r
def seq():
    out=[]; multi=False
    for _ in range(rnd.randint(2,14)):
        if rnd.random()<.04: out.append(['MULTI'])
        if rnd.random()<.05: out.append(rnd.choice([['EXEC'],['DISCARD'],['EXEC']]))
        c=junk(rnd.choice(G)())
        out.append(c)
    out.append(['EXEC'])
    for x in KEYS: out+= [['TYPE',x],['OBJECT','ENCODING',x]]
    return out
class Side:
    def __init__(s,port,proto,events):
        s.port,s.proto=port,proto; s.c=Conn(port,proto); s.ev=None
        s.adm=Conn(port)
        if events:
            s.ev=Conn(port); s.ev.cmd('PSUBSCRIBE','__keyevent@*')
    def reset(s):
        s.c.close(); s.c=Conn(s.port,s.proto); s.adm.cmd('FLUSHALL'); s.events()
    def events(s):
        if not s.ev: return []
        s.ev.send('PING'); o=[]
        while 1:
            r=s.ev.read()
            if r==[b'*',b'pong',b'']: return o
            o.append((r[3].split(b':')[1],r[4],r[3]))
def rand(c,r): return c[0].upper() in('SPOP','SRANDMEMBER') 
def run(cmds,proto,events,A,B):
    for s in (A,B): s.reset()
    inm=False; q=[]
    for n,c in enumerate(cmds):
        if c[0] in('BLPOP','BRPOP','BLMOVE','BRPOPLPUSH','BLMPOP'):
            # never block for long
            pass
        A.c.send(*c); B.c.send(*c)
        # unblock long waits
        if c[0].startswith('B'):
            for s in (A,B):
                if not s.c.pending(0.05):
                    s.adm.cmd('CLIENT','UNBLOCK',idof(s))
        ra,rb=A.c.read(),B.c.read()
        if c[0]=='MULTI' and ra==('+',b'OK'): q=[]
        if ra==('+',b'QUEUED'): q.append(c)
        if c[0]=='EXEC' and isinstance(ra,list) and isinstance(rb,list) and len(ra)==len(rb)==len(q)+1:
            na=[norm(x,y) for x,y in zip(q,ra[1:])]; nb=[norm(x,y) for x,y in zip(q,rb[1:])]
            part=any(x[0]=='SPOP' for x in q); q=[]
        else:
            na,nb=norm(c,ra),norm(c,rb); part=c[0]=='SPOP' and ra!=('+',b'QUEUED')
        if na!=nb: return (n,c,ra,rb)
        if events:
            ea,eb=A.events(),B.events()
            if ea!=eb: return (n,c,'events',ea,eb)
        if part:
            st=[]
            for s in (A,B):
                st.append([s.adm.cmd('SCARD',x) for x in KEYS])
            if st[0]!=st[1]: return (n,c,'cards',st)
            # contents may differ now
            mm=[[sorted(map(repr,s.adm.cmd('SMEMBERS',x))) for x in KEYS] for s in (A,B)]
            if mm[0]!=mm[1]: return None
    return None
def idof(s):
    # the id of the connection under test: found by name list
    for l in s.adm.cmd('CLIENT','LIST').decode().split('\n'):
        f=dict(x.split('=',1) for x in l.split(' ') if '=' in x)
        if f.get('addr')=='%s:%d'%s.c.s.getsockname()[:2]: return f['id']
def key(res):
    n,c=res[0],res[1]
    sh=lambda x: repr(x)[:50]
    return (c[0],sh(res[2]),sh(res[3]) if len(res)>3 else '')
def main():
    for p in (R,M):
        c=Conn(p); print(c.cmd('CONFIG','SET','notify-keyspace-events','KEAn' )); c.close()
    sides={}
    for proto in(2,3):
        for ev in (0,1): sides[proto,ev]=(Side(R,proto,ev),Side(M,proto,ev))
    end=time.time()+secs; seen={}; n=0
    while time.time()<end:
        cmds=seq(); n+=1
        p,e=rnd.choice([2,3]),rnd.choice([0,0,1])
        A,B=sides[p,e]
        try: res=run(cmds,p,e,A,B)
        except Exception as x:
            print('EXC',repr(x),cmds,flush=True); sides[p,e]=(Side(R,p,e),Side(M,p,e)); continue
        if res:
            cmds=cmds[:res[0]+1]; i0=key(res)
            if seen.get((i0[0]),0)>=6 : continue
            ch=True
            while ch:
                ch=False
                for j in range(len(cmds)-1):
                    t=cmds[:j]+cmds[j+1:]
                    try: r2=run(t,p,e,A,B)
                    except Exception: sides[p,e]=A,B=(Side(R,p,e),Side(M,p,e)); continue
                    if r2 and r2[1][0]==res[1][0]:
                        cmds=t[:r2[0]+1]; res=r2; ch=True; break
            kk=key(res)
            if kk in seen: seen[kk]+=1; continue
            seen[kk]=1; seen[kk[0]]=seen.get(kk[0],0)+1
            print('DIFF proto',p,'ev',e,'\n  ', [[x[:40] for x in c] for c in cmds],'\n   redis',repr(res[2])[:600],'\n   mneme',repr(res[3] if len(res)>3 else '')[:600],repr(res[4])[:600] if len(res)>4 else '',flush=True)
    print('sequences',n)
main()
