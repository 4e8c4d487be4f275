# Random producers, waiters that are unblocked, killed, time out, disconnect; at the end: no item beside a sleeper
import sys,time,threading,random
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=int(sys.argv[1]); secs=float(sys.argv[2]); adm=Conn(P,timeout=60); adm.cmd('FLUSHALL')
stop=[False]; got=[0]*40; lost=[]; made=[0]*8
keys=['a','b','c','d']
ids={}; cur={}
def waiter(n):
    r=random.Random(n); c=None
    while not stop[0]:
        try:
            if c is None:
                c=Conn(P,r.choice([2,3]),timeout=60); ids[n]=str(c.cmd('CLIENT','ID'))
            t=r.choice(['0','0','0.01','0.05'])
            ks=[r.choice(keys) for _ in range(r.randint(1,4))]
            q=r.random()
            if q<.4: cmd=['BLPOP']+ks+[t]
            elif q<.6: cmd=['BLMPOP',t,str(len(ks))]+ks+['LEFT','COUNT',str(r.randint(1,3))]
            elif q<.9: cmd=['BLMOVE',r.choice(keys),r.choice(keys),'LEFT','RIGHT',t]
            else: cmd=['BRPOPLPUSH',r.choice(keys),r.choice(keys),t]
            cur[ids[n]]=(cmd[1:-1] if cmd[0] in('BLPOP',) else cmd[3:3+int(cmd[2])] if cmd[0]=='BLMPOP' else [cmd[1]])
            c.send(*cmd)
            if r.random()<.05: c.close(); c=None; continue
            x=c.read()
            if isinstance(x,list):
                got[n]+= len(x[2])-1 if cmd[0]=='BLMPOP' else 1
        except (EOFError,ConnectionError,OSError): c=None
def producer(n):
    r=random.Random(100+n); c=Conn(P,timeout=60)
    while not stop[0]:
        k=r.choice(keys); q=r.random()
        if q<.5: c.cmd('RPUSH',k,*['x']*r.randint(1,3))
        elif q<.6: c.raw(c.enc(['MULTI'])+c.enc(['RPUSH',k,'1'])+c.enc(['RPUSH',r.choice(keys),'2'])+c.enc(['LPOP',k])+c.enc(['EXEC'])); [c.read() for _ in range(5)]
        elif q<.7: c.cmd('RPUSH','q%d'%n,'x'); c.cmd('RENAME','q%d'%n,k)
        elif q<.75: c.cmd('RPUSH','q%d'%n,'x'); c.cmd('COPY','q%d'%n,k); c.cmd('DEL','q%d'%n)
        elif q<.8: c.cmd('SWAPDB','0','1')
        elif q<.83: c.cmd('SELECT','1'); c.cmd('RPUSH',k,'z'); c.cmd('MOVE',k,'0'); c.cmd('SELECT','0')
        elif q<.86: c.cmd('SET',k,'s'); c.cmd('DEL',k)
        elif q<.9: c.cmd('CLIENT','UNBLOCK',r.choice(list(ids.values()) or ['0']),r.choice(['TIMEOUT','ERROR']))
        elif q<.92: c.cmd('CLIENT','KILL','ID',r.choice(list(ids.values()) or ['0']))
        elif q<.93: c.cmd('CLIENT','PAUSE',str(r.randint(1,20)),r.choice(['WRITE','ALL']))
        elif q<.95: c.cmd('DEL',k)
        else: time.sleep(r.random()*.02)
        made[n]+=1
ts=[threading.Thread(target=waiter,args=(n,),daemon=True) for n in range(16)]+[threading.Thread(target=producer,args=(n,),daemon=True) for n in range(3)]
[t.start() for t in ts]
bad=0; e=time.time()+secs; rounds=0
while time.time()<e:
    time.sleep(.3); 
stop[0]=True
time.sleep(1.5)
print('made',made,'got',sum(got))
def state():
    l=[dict(y.split('=',1) for y in x.split()) for x in adm.cmd('CLIENT','LIST').decode().strip().split('\n')]
    return [(f['id'],f['cmd'],f['db']) for f in l if 'b' in f['flags']],{k:adm.cmd('LLEN',k) for k in keys}, [x for x in adm.cmd('INFO','clients').decode().split('\r\n') if 'blocked' in x]
print(state())

def check(what):
    b=state()
    for (i,c,db) in b[0]:
        for k in cur[i]:
            if b[1][k]: print('LOST',what,i,c,cur[i],b); return 1
    return 0
bad=check('end')
for k in keys:
    adm.cmd('RPUSH',k,'fin1'); time.sleep(.2); bad|=check('push '+k)
print('bad',bad,state()[1:])
adm.cmd('CLIENT','KILL','TYPE','normal','SKIPME','yes'); time.sleep(.5); print(state())
