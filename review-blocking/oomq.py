import sys,time
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
c=Conn(7955,timeout=60); print(c.cmd('FLUSHALL')); time.sleep(1)
n=0; q=0
while 1:   # 200 queues, items of 1 KB
    r=c.cmd('RPUSH','q%d'%(q%8),*['x'*1000]*50); q+=1
    if isinstance(r,tuple): break
    n+=50
print('items of 1 KB in 8 queues until OOM',n,r)
time.sleep(3)
fails=[c.cmd('LPOP','q%d'%i) for i in range(8)]; print('LPOP of each:',[repr(f)[:20] for f in fails])
time.sleep(3); print('later:',[repr(c.cmd('LPOP','q%d'%i))[:20] for i in range(8)])
c.cmd('FLUSHALL'); time.sleep(1); n=0
while 1:
    r=c.cmd('RPUSH','q',*['x'*1000]*50)
    if isinstance(r,tuple): break
    n+=50
print('one queue: items until OOM',n,'LPOP:',[repr(c.cmd('LPOP','q'))[:40] for _ in range(3)]); time.sleep(3); print('later',repr(c.cmd('LPOP','q'))[:60], repr(c.cmd('LTRIM','q','0','0'))[:60], c.cmd('DEL','q'))
