import sys,time
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=int(sys.argv[1]); adm=Conn(P)
for rep in range(4):
    adm.cmd('FLUSHALL'); W=Conn(P); p=Conn(P); W.send('BLPOP','k','0'); time.sleep(.2); n=0; t=time.time()
    while time.time()-t<6 and not W.pending():
        p.raw((p.enc(['RPUSH','k','1'])+p.enc(['BLPOP','k','0.01']))*20); x=[p.read() for _ in range(40)]; n+=sum(isinstance(q,list) for q in x[1::2])
    print('port',P,'BLPOPs that came later and got an item in %.1f s: %d; W got'%(time.time()-t,n),W.read() if W.pending() else 'NOTHING',flush=True); W.close()
    if rep%2: p.close()
    time.sleep(.1)
# one item a request, so that nothing is pipelined
for rep in range(2):
    adm.cmd('FLUSHALL'); W=Conn(P); p=Conn(P); W.send('BLPOP','k','0'); time.sleep(.2); n=0; t=time.time(); 
    while time.time()-t<3 and not W.pending():
        p.cmd('RPUSH','k','1'); n+=isinstance(p.cmd('BLPOP','k','0.01'),list)
    print('port',P,'one by one: later BLPOPs served first',n,W.read() if W.pending() else 'NOTHING'); W.close()
