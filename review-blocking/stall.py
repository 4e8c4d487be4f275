import sys,time,threading
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=7953
c=Conn(P,timeout=300); o=[Conn(P,timeout=300) for _ in range(4)]; adm=Conn(P,timeout=300)
for x in o: x.cmd('PING')
worst=[0]*5; stop=[False]
def ping(i):
    while not stop[0]:
        t=time.time(); o[i].cmd('PING'); worst[i]=max(worst[i],time.time()-t); time.sleep(.02)
def conf():
    while not stop[0]:
        t=time.time(); adm.cmd('CONFIG','SET','slowlog-max-len','128'); worst[4]=max(worst[4],time.time()-t); time.sleep(.1)
ts=[threading.Thread(target=ping,args=(i,)) for i in range(4)]+[threading.Thread(target=conf)]
c.cmd('DEL','L')
data=Conn.enc(['RPUSH','L']+['x']*120000)
[t.start() for t in ts]
t=time.time(); c.s.sendall(data); r=c.read(); print('RPUSH of 120000 in one command',r,'%.1f s'%(time.time()-t), 'request bytes',len(data))
stop[0]=True; [x.join() for x in ts]
print('worst PING of 4 others, CONFIG SET:',['%.2f'%w for w in worst])
t=time.time(); 
for _ in range(20): c.cmd('LLEN','L')
print('LLEN of 120000: %.2f ms'%((time.time()-t)*50))
c.cmd('DEL','L')
