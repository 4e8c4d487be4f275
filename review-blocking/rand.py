import sys,time,threading
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=7953; c=Conn(P,timeout=100); o=[Conn(P,timeout=100) for _ in range(2)]
pid=int(open('/tmp/rb/m53.pid').read())
def rss(k='VmHWM'): return int([l for l in open('/proc/%d/status'%pid) if l.startswith(k)][0].split()[1])//1024
c.cmd('FLUSHALL'); c.cmd('SADD','s','a','b','c')
w=[0,0]; stop=[0]
def ping(i):
    while not stop[0]:
        t=time.time(); o[i].cmd('PING'); w[i]=max(w[i],time.time()-t); time.sleep(.01)
ts=[threading.Thread(target=ping,args=(i,)) for i in(0,1)]; [t.start() for t in ts]
t=time.time(); c.send('SRANDMEMBER','s','-2147483648')
try:
    n=0
    while 1:
        d=c.s.recv(1<<20)
        if not d: break
        n+=len(d)
        if n>50<<20: break
    print('got',n)
except Exception as e: print(repr(e))
print('%.1f s'%(time.time()-t),'peak RSS',rss()); c.close(); time.sleep(.5); stop[0]=1; [t.join() for t in ts]; print('worst PING',w)
