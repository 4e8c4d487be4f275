import socket,subprocess,sys,time,os
port=17391
class C:
    def __init__(s): s.s=socket.create_connection(('127.0.0.1',port)); s.f=s.s.makefile('rb')
    def __call__(s,*a):
        s.send(*a); return s.recv()
    def send(s,*a):
        b=b'*%d\r\n'%len(a)
        for x in a:
            x=x if isinstance(x,bytes) else str(x).encode()
            b+=b'$%d\r\n%s\r\n'%(len(x),x)
        s.s.sendall(b)
    def recv(s):
        l=s.f.readline()[:-2]; t,r=l[:1],l[1:]
        if t in b'+': return r
        if t==b'-': return Exception(r.decode())
        if t==b':': return int(r)
        if t==b'$':
            n=int(r)
            if n<0: return None
            d=s.f.read(n+2)[:-2]; return d
        if t==b'*':
            return None if int(r)<0 else [s.recv() for _ in range(int(r))]
        return l
import shutil
def start(*opts):
    global p
    p=subprocess.Popen(['mneme','serve','--port',str(port),*opts],stderr=open('/tmp/rc_srv.log','w'),stdout=subprocess.DEVNULL,cwd='/tmp/rc_dir')
    for _ in range(200):
        try:
            c=C(); assert c('PING')==b'PONG'; return c
        except OSError: time.sleep(0.05)
    raise SystemExit('no server: '+open('/tmp/rc_srv.log').read()[-800:])
def stop():
    p.terminate(); p.wait()
def multi(c,*cmds):
    c('MULTI')
    for x in cmds: 
        r=c(*x); assert r==b'QUEUED',r
    return c('EXEC')
def fields(n,v=b'v'*100): 
    a=[]
    for i in range(n): a+=['field:%d'%i,v]
    return a
def t_leak():
    c=start(*OPTS)
    f=fields(600)
    for i in range(4000):
        r=multi(c,['HSET','h',*f],['DEL','h'])
        if isinstance(r,Exception) or any(isinstance(x,Exception) for x in r):
            print('leak: round',i,r,'DBSIZE',c('DBSIZE')); break
    else: print('no leak')
    time.sleep(3); print('after 3 s: SET ->',c('SET','k','v'*200000))
    stop()
def t_fail():
    c=start(*OPTS)
    c('HSET','h',*fields(600))
    print('before',c('HLEN','h'))
    print(multi(c,['HSET','h','new','1','x'*65530,'1'],['SET','other','1']))
    print('HLEN',c('HLEN','h'),'HGETALL',len(c('HGETALL','h'))//2,'HGET new',c('HGET','h','new'))
    r=c('MNEME','CHECK'); print('CHECK',r)
    c('HDEL','h',*['field:%d'%i for i in range(600)]); print('after HDEL of 600: EXISTS',c('EXISTS','h'),'HLEN',c('HLEN','h'),'HGET new',c('HGET','h','new'),'HGETALL',c('HGETALL','h'))
    print('CHECK',c('MNEME','CHECK'))
    stop()
import threading
def t_live(n=400000,gap=0.01):
    c=start(*OPTS)
    for b in range(0,n,10000):
        a=[]
        for i in range(b,b+10000): a+=['field:%d'%i,'0123456789']
        assert not isinstance(c('HSET','h',*a),Exception)
    t=time.time(); r=c('HGETALL','h'); print('HGETALL alone',len(r)//2,round(time.time()-t,3))
    t=time.time(); c('COPY','h','h2'); print('COPY alone',round(time.time()-t,3)); c('DEL','h2')
    stopit=[False]; lat=[]
    def write():
        w=C(); i=0
        while not stopit[0]:
            t=time.time(); w('HSET','h','counter',i); lat.append(time.time()-t); i+=1; time.sleep(gap)
    th=threading.Thread(target=write); th.start()
    for cmd in (['HGETALL','h'],['COPY','h','h2'],['MNEME','CHECK']):
        d=C(); d.s.settimeout(20); t=time.time(); lat.clear()
        try: r=d(*cmd); r=len(r) if isinstance(r,list) else r
        except Exception as e: r='no reply: %r'%e
        print(cmd,'beside a writer:',r if not isinstance(r,bytes) else r[:200],round(time.time()-t,2),'writer: n',len(lat),'max',round(max(lat or [0]),3))
        other=C(); other.s.settimeout(3)
        try: print('  another client PING',other('PING'))
        except Exception as e: print('  another client: ',repr(e))
    stopit[0]=True; th.join(); p.kill(); p.wait()
def t_rand():
    c=start(*OPTS)
    n=50000
    for b in range(0,n,500): c('SADD','s',*[b'%01000d'%i for i in range(b,b+500)])
    t=time.time(); [c('SRANDMEMBER','s') for _ in range(100)]; print('full: 100 SRANDMEMBER',round(time.time()-t,3))
    for b in range(2,n,500): c('SREM','s',*[b'%01000d'%i for i in range(b,min(b+500,n))])
    print('SCARD',c('SCARD','s'))
    t=time.time(); got=[c('SRANDMEMBER','s')[-1] for _ in range(100)]; print('shrunk: 100 SRANDMEMBER',round(time.time()-t,3),{chr(k):got.count(k) for k in set(got)})
    t=time.time(); c('SMEMBERS','s'); print('SMEMBERS of 2',round(time.time()-t,4))
    stop()
def t_long():
    c=start(*OPTS)
    for name,first in (('normal','f'),('long','x'*65530)):
        c('HSET',name,first,'1')
        t=time.time(); n=20000
        for b in range(0,n,100):
            for i in range(b,b+100): c.send('HSET',name,'field:%d'%i,'v'*50)
            for i in range(100): c.recv()
        print(name,n,'HSETs',round(time.time()-t,2),'s')
    stop()

def t_zombie():
    c=start(*OPTS); d=C()
    big=fields(40); names=['field:%d'%i for i in range(40)]
    stopit=[False]
    def write():
        while not stopit[0]:
            for _ in range(50): c.send('HSET','h',*big); c.send('HDEL','h',*names)
            for _ in range(100): c.recv()
    th=threading.Thread(target=write); th.start()
    errs={}; n=0; t=time.time()
    while time.time()-t<10:
        for _ in range(200): d.send('HGET','h','field:1')
        for _ in range(200):
            r=d.recv(); n+=1
            if isinstance(r,Exception): errs[str(r)]=errs.get(str(r),0)+1
    stopit[0]=True; th.join(); print(n,'HGET',errs); stop()
OPTS=sys.argv[2].split() if len(sys.argv)>2 else []
shutil.rmtree('/tmp/rc_dir',ignore_errors=True); os.makedirs('/tmp/rc_dir')
for t in sys.argv[1].split(','):
    print('==',t); 
    try: globals()['t_'+t]()
    finally:
        p.kill(); p.wait()
