import sys,time,threading,socket
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=int(sys.argv[1]); only=sys.argv[2:] 
def C(proto=2): return Conn(P,proto,timeout=8)
def info(f):
    r=adm.cmd('INFO').decode()
    return [l.split(':')[1].strip() for l in r.split('\n') if l.startswith(f+':')][0]
def waitb(n,t=3):
    e=time.time()+t
    while time.time()<e:
        if int(info('blocked_clients'))==n: return
        time.sleep(.01)
    raise Exception('blocked_clients is %s not %d'%(info('blocked_clients'),n))
def rd(c,t=1.0):
    if not c.pending(t): return 'NOTHING'
    try: return c.read()
    except Exception as e: return repr(e)
S=[]
def sc(f): S.append(f); return f
@sc
def barge_lpop():
    res=[]
    for rep in range(6):
        W=C(); p=C()
        W.send('BLPOP','k','0'); waitb(1); n=0; stolen=0
        p.raw(p.enc(['RPUSH','k','1'])+p.enc(['LPOP','k'])); r=[p.read(),p.read()]
        res.append((r[1],rd(W,.3))); W.close(); p.close(); waitb(0); adm.cmd('FLUSHALL')
    return res
@sc
def barge_blpop_starve():
    res=[]
    for rep in range(4):
        W=C(); p=C(); W.send('BLPOP','k','0'); waitb(1); n=0
        t=time.time()
        while time.time()-t<1.5 and not W.pending():
            p.raw((p.enc(['RPUSH','k','1'])+p.enc(['BLPOP','k','0.01']))*50)
            x=[p.read() for _ in range(100)]
            n+=sum(isinstance(q,list) for q in x[1::2])
        res.append(('items taken by the later BLPOP before W got one',n,rd(W,.0)!='NOTHING')); W.close(); p.close(); waitb(0); adm.cmd('FLUSHALL')
    return res
@sc
def deluser():
    out=[]
    adm.cmd('ACL','SETUSER','u','on','nopass','~*','+@all')
    W=C(); W.cmd('AUTH','u','x'); W.send('BLPOP','k','0'); waitb(1)
    r=adm.cmd('ACL','DELUSER','u'); out.append((r,rd(W),)); time.sleep(.2); out.append(info('blocked_clients')); W.close(); waitb(0)
    adm.cmd('ACL','SETUSER','u','on','nopass','~*','+@all')
    W=C(); W.cmd('AUTH','u','x'); W.send('BLPOP','k','0'); waitb(1)
    W2=C(); W2.send('BLPOP','k','0'); waitb(2)
    adm.cmd('ACL','SETUSER','u','resetkeys','~z'); time.sleep(.2); out.append(('setuser',info('blocked_clients')))
    adm.cmd('RPUSH','k','1'); out.append((rd(W),rd(W2),info('blocked_clients')))
    W.close();W2.close(); adm.cmd('ACL','DELUSER','u'); adm.cmd('FLUSHALL'); waitb(0)
    return out
@sc
def setuser_off():
    adm.cmd('ACL','SETUSER','u','on','nopass','~*','+@all')
    W=C(); W.cmd('AUTH','u','x'); W.send('BLPOP','k','0'); waitb(1)
    adm.cmd('ACL','SETUSER','u','off'); adm.cmd('RPUSH','k','1'); r=rd(W); W.close(); adm.cmd('ACL','DELUSER','u'); adm.cmd('FLUSHALL'); waitb(0)
    return r
@sc
def kills():
    out=[]
    W=C(); i=W.cmd('CLIENT','ID'); W.send('BLPOP','k','0'); waitb(1)
    out.append((adm.cmd('CLIENT','KILL','ID',str(i)),rd(W))); waitb(0)
    W=C(); W.send('BLPOP','k','0'); waitb(1); W.close(); waitb(0); out.append('closed ok')
    W=C(); W.raw(W.enc(['BLPOP','k','0'])+W.enc(['SET','x','1'])*1000); waitb(1); W.close(); waitb(0); out.append(('closed with pipeline behind ok',adm.cmd('EXISTS','x')))
    W=C(); W.send('BLPOP','k','0'); waitb(1); W.s.shutdown(socket.SHUT_WR); waitb(0); out.append(('half closed',rd(W)))
    W=C(); W.raw(W.enc(['BLPOP','k','0'])+W.enc(['SET','x','1'])*10); waitb(1); W.s.shutdown(socket.SHUT_WR); time.sleep(.3); out.append(('half closed with pipeline',info('blocked_clients'),adm.cmd('EXISTS','x'))); W.close()
    adm.cmd('FLUSHALL'); return out
@sc
def reply_modes():
    out=[]
    for mode in ('OFF','SKIP'):
        for end in ('push','timeout','unblock'):
            W=C(); i=W.cmd('CLIENT','ID'); W.send('CLIENT','REPLY',mode); W.send('BLPOP','k','0' if end!='timeout' else '0.1'); W.send('PING'); 
            if end!='timeout': waitb(1)
            if end=='push': adm.cmd('RPUSH','k','1')
            if end=='unblock': out.append(adm.cmd('CLIENT','UNBLOCK',str(i),'ERROR'))
            time.sleep(.3); W.send('CLIENT','REPLY','ON'); W.send('ECHO','end')
            g=[]
            while 1:
                r=rd(W,.5)
                if r=='NOTHING' : break
                g.append(r)
                if r==b'end': break
            out.append((mode,end,g,adm.cmd('LLEN','k'))); W.close(); adm.cmd('DEL','k')
    waitb(0); return out
@sc
def resp3():
    out=[]
    W=C(3)
    for c in (['BLPOP','k','0.05'],['BLMOVE','k','l','LEFT','LEFT','0.05'],['BLMPOP','0.05','1','k','LEFT'],['BRPOPLPUSH','k','l','0.05']): out.append(W.cmd(*c))
    W2=C(2)
    for c in (['BLPOP','k','0.05'],['BLMOVE','k','l','LEFT','LEFT','0.05'],['BLMPOP','0.05','1','k','LEFT'],['BRPOPLPUSH','k','l','0.05']): out.append(W2.cmd(*c))
    W.cmd('SUBSCRIBE','ch'); W.send('BLPOP','k','0'); waitb(1); adm.cmd('PUBLISH','ch','hi'); out.append(rd(W)); adm.cmd('RPUSH','k','1'); out.append(rd(W)); W.close(); W2.close(); waitb(0); return out
@sc
def multi():
    W=C(); out=[]
    for c in (['BLPOP','k','0'],['BLMOVE','k','l','LEFT','LEFT','0'],['BLMPOP','0','1','k','LEFT'],['BRPOPLPUSH','k','l','0'],['BRPOP','k','abc']):
        W.cmd('MULTI'); W.cmd(*c); out.append(W.cmd('EXEC'))
    # waiter of MULTI/EXEC with push and pop within
    V=C(); V.send('BLPOP','k','0'); waitb(1)
    W.cmd('MULTI'); W.cmd('RPUSH','k','1'); W.cmd('LPOP','k'); out.append(W.cmd('EXEC')); out.append(rd(V,.3)); 
    W.cmd('MULTI'); W.cmd('RPUSH','k','1','2'); W.cmd('LPOP','k'); out.append(W.cmd('EXEC')); out.append(rd(V,.3)); V.close(); W.close(); adm.cmd('FLUSHALL'); waitb(0); return out
@sc
def pipeline_behind():
    W=C(); W.raw(W.enc(['BLPOP','k','0'])+W.enc(['SET','x','1'])+W.enc(['GET','x'])); waitb(1); a=adm.cmd('EXISTS','x'); adm.cmd('RPUSH','k','v'); r=[rd(W) for _ in range(3)]; W.close(); adm.cmd('FLUSHALL'); return a,r
@sc
def pause():
    out=[]
    W=C(); i=W.cmd('CLIENT','ID'); W.send('BLPOP','k','0'); waitb(1)
    adm.cmd('CLIENT','PAUSE','2000','ALL'); out.append(adm.cmd('CLIENT','UNBLOCK',str(i))); t=time.time(); r=rd(W,4); out.append(('unblock in pause ALL',r,'late' if time.time()-t>1 else 'soon')); adm.cmd('CLIENT','UNPAUSE'); W.close(); waitb(0)
    W=C(); i=W.cmd('CLIENT','ID'); W.send('BLPOP','k','0.3'); waitb(1); adm.cmd('CLIENT','PAUSE','2000','ALL'); t=time.time(); r=rd(W,4); out.append(('timeout in pause ALL',r,'late' if time.time()-t>1 else 'soon')); adm.cmd('CLIENT','UNPAUSE'); W.close(); waitb(0)
    # woken then held by a pause, then unblocked
    W=C(); i=W.cmd('CLIENT','ID'); W.send('BLPOP','k','0'); waitb(1)
    p=C(); p.cmd('MULTI'); p.cmd('RPUSH','k','1'); p.cmd('CLIENT','PAUSE','3000','WRITE'); out.append(p.cmd('EXEC')); time.sleep(.2); r=rd(W,.3); out.append(('served in pause WRITE set by the same EXEC',r,'blocked',info('blocked_clients'))); t=time.time(); out.append(('unblock',adm.cmd('CLIENT','UNBLOCK',str(i)),rd(W,1),'blocked',info('blocked_clients'),'%.1f'%(time.time()-t)))
    t=time.time(); W3=C(); j=W3.cmd('CLIENT','ID'); out.append(('kill while held',adm.cmd('CLIENT','KILL','ID',str(i)))); 
    adm.cmd('CLIENT','UNPAUSE'); time.sleep(.1); out.append((rd(W,.5),adm.cmd('LRANGE','k','0','-1'))); W.close(); adm.cmd('FLUSHALL'); waitb(0)
    return out
@sc
def fifo():
    out=[]
    for rep in range(3):
        ws=[]
        for n in range(6):
            w=C(); w.send('BLPOP','k','0'); waitb(n+1); ws.append(w)
        p=C()
        for n in range(6): p.send('RPUSH','k',str(n))
        for n in range(6): p.read()
        out.append([rd(w)[-1] for w in ws]); [w.close() for w in ws]; p.close(); adm.cmd('FLUSHALL')
        ws=[]
        for n in range(6):
            w=C(); w.send('BLPOP','k','0'); waitb(n+1); ws.append(w)
        adm.cmd('RPUSH','k','0','1','2'); a=[rd(w,.3) for w in ws]; adm.cmd('RPUSH','k','3','4','5'); b=[rd(w,.3) for w in ws]; out.append([x[-1] if x!='NOTHING' else 0 for x in a+b]); [w.close() for w in ws]; adm.cmd('FLUSHALL'); waitb(0)
    return out
@sc
def wrongtype():
    out=[]; W=C(); W.send('BLPOP','k','0'); waitb(1); adm.cmd('SET','k','s'); adm.cmd('DEL','k'); adm.cmd('SADD','k','x'); adm.cmd('RENAME','k','kk'); adm.cmd('SADD','q','1'); adm.cmd('RENAME','q','k'); out.append(rd(W,.2)); adm.cmd('DEL','k'); adm.cmd('RPUSH','k','v'); out.append(rd(W)); 
    # dest wrong type
    W.send('BLMOVE','k','d','LEFT','LEFT','0'); waitb(1); V=C(); V.send('BLPOP','k','0'); waitb(2); adm.cmd('SET','d','s'); adm.cmd('RPUSH','k','v'); out.append((rd(W),rd(V),adm.cmd('LRANGE','k','0','-1'))); W.close(); V.close(); adm.cmd('FLUSHALL'); waitb(0); return out
@sc
def chains():
    out=[]; 
    A=C();A.send('BLMOVE','a','b','LEFT','RIGHT','0'); waitb(1); B=C(); B.send('BLMOVE','b','c','LEFT','RIGHT','0'); waitb(2); D=C(); D.send('BLPOP','c','0'); waitb(3)
    adm.cmd('RPUSH','a','v'); out.append([rd(x) for x in(A,B,D)]); waitb(0); out.append(adm.cmd('KEYS','*'))
    A.send('BLMOVE','a','a','LEFT','RIGHT','0'); waitb(1); D.send('BLPOP','a','0'); waitb(2); adm.cmd('RPUSH','a','v'); out.append([rd(x) for x in(A,D)]); waitb(0); adm.cmd('FLUSHALL')
    # waiter on the same source behind BLMOVE to itself, two
    A.send('BLMOVE','a','b','LEFT','RIGHT','0'); waitb(1); B.send('BLMOVE','b','a','LEFT','RIGHT','0'); waitb(2); adm.cmd('RPUSH','a','v'); out.append([rd(A),rd(B),adm.cmd('LRANGE','a','0','-1')]); waitb(0)
    [x.close() for x in(A,B,D)]; adm.cmd('FLUSHALL'); return out
@sc
def samekey_manykeys():
    out=[]; A=C(); A.send('BLPOP','k','k','k','0'); waitb(1); adm.cmd('RPUSH','k','v'); out.append(rd(A)); out.append(adm.cmd('EXISTS','k'))
    t=time.time(); A.send('BLPOP',*['k%d'%i for i in range(10000)],'0'); waitb(1); adm.cmd('RPUSH','k9999','v'); out.append(rd(A,3)); A.close(); waitb(0); return out
@sc
def wakers():
    out=[]
    def one(name,prep,*do,db=0):
        W=C(); W.cmd('SELECT',str(db)); 
        for c in prep: adm.cmd(*c)
        W.send('BLPOP','k','0'); waitb(1)
        for c in do: adm.cmd(*c)
        out.append((name,rd(W,.4))); W.close(); adm.cmd('SELECT','0'); adm.cmd('FLUSHALL'); waitb(0)
    one('rename',[['RPUSH','q','1']],['RENAME','q','k'])
    one('renamenx',[['RPUSH','q','1']],['RENAMENX','q','k'])
    one('copy',[['RPUSH','q','1']],['COPY','q','k'])
    one('copydb',[['RPUSH','q','1']],['COPY','q','k','DB','3'],db=3)
    one('move',[['RPUSH','k','1']],['MOVE','k','3'],db=3)
    one('swapdb',[['RPUSH','k','1']],['SWAPDB','0','3'],db=3)
    one('swapdb reverse',[['SELECT','3'],['RPUSH','k','1'],['SELECT','0']],['SWAPDB','3','0'],db=0)
    one('exec rename',[['RPUSH','q','1']],['MULTI'],['RENAME','q','k'],['EXEC'])
    one('exec swapdb',[['SELECT','3'],['RPUSH','k','1'],['SELECT','0']],['MULTI'],['SWAPDB','3','0'],['EXEC'],db=0)
    one('exec select',[],['MULTI'],['SELECT','3'],['RPUSH','k','1'],['SELECT','0'],['EXEC'],db=3)
    one('exec move',[['RPUSH','k','1']],['MULTI'],['MOVE','k','3'],['EXEC'],db=3)
    one('lmove',[['RPUSH','q','1']],['LMOVE','q','k','LEFT','LEFT'])
    one('rpoplpush',[['RPUSH','q','1']],['RPOPLPUSH','q','k'])
    one('linsert none',[],['LPUSHX','k','1'],['RPUSH','k','2'])
    one('exec publish push (exclusive)',[],['MULTI'],['PUBLISH','c','x'],['RPUSH','k','1'],['EXEC'])
    one('debug reload',[],['DEBUG','RELOAD'],['RPUSH','k','1'])
    one('expire of string then push',[['SET','k','s','PX','100']],['GET','k']) if 0 else None
    return out
@sc
def expiring():
    W=C(); adm.cmd('RPUSH','k','1'); adm.cmd('PEXPIRE','k','1'); time.sleep(.05); W.send('BLPOP','k','0'); waitb(1); adm.cmd('RPUSH','k','2'); r=rd(W); W.close(); return r
@sc
def watch():
    A=C(); A.cmd('WATCH','k'); W=C(); W.send('BLPOP','k','0'); waitb(1); adm.cmd('RPUSH','k','v'); rd(W); A.cmd('MULTI'); A.cmd('PING'); r=A.cmd('EXEC')
    W.cmd('WATCH','z'); W.send('BLPOP','k','0'); waitb(1); adm.cmd('SET','z','1'); adm.cmd('RPUSH','k','v'); x=rd(W); W.cmd('MULTI'); W.cmd('PING'); y=W.cmd('EXEC'); A.close();W.close(); adm.cmd('FLUSHALL'); return r,x,y
@sc
def ordering_two_keys():
    W=C(); W.send('BLPOP','a','b','0'); waitb(1); adm.cmd('MULTI'); adm.cmd('RPUSH','b','1'); adm.cmd('RPUSH','a','2'); adm.cmd('EXEC'); r=rd(W); W.close(); adm.cmd('FLUSHALL'); return r
@sc
def timeouts():
    out=[]
    for t in ('0.0001','1e-9','0.0000000001','-0.00001','9223372036854775','9223372036854775.807','9223372036854776','1e18','1e400','inf','nan','0x1p-4',' 1','1 ','','+0.01','-0','-0.0','1e-4000','99999999999999999999','9223370000000000'):
        W=C(); W.send('BLPOP','k',t); r=rd(W,.25); out.append((t,r)); W.close()
    waitb(0); return out
@sc
def unblock():
    out=[]; W=C(); i=str(W.cmd('CLIENT','ID')); out.append(adm.cmd('CLIENT','UNBLOCK',i)); W.send('BLPOP','k','0'); waitb(1); out.append((adm.cmd('CLIENT','UNBLOCK',i),rd(W))); W.send('BLMOVE','k','k','LEFT','LEFT','0'); waitb(1); out.append((adm.cmd('CLIENT','UNBLOCK',i,'error'),rd(W)));
    for a in (['abc'],['-1'],['99999999999999999999'],[i,'x'],['0'],[i,'TIMEOUT','x']): out.append((a if i not in a else '',adm.cmd('CLIENT','UNBLOCK',*a)))
    # self in multi
    out.append(W.cmd('PING')); l=[x for x in adm.cmd('CLIENT','LIST').decode().split('\n') if x.startswith('id=%s '%i)][0]; W.send('BLPOP','k','0'); waitb(1); l=[x for x in adm.cmd('CLIENT','LIST').decode().split('\n') if x.startswith('id=%s '%i)][0]; f=dict(x.split('=',1) for x in l.split()); out.append((f['flags'],f['cmd'],f['events'])); W.close(); waitb(0); return out
@sc
def cmdstat():
    adm.cmd('CONFIG','RESETSTAT'); W=C(); W.send('BLPOP','k','0'); waitb(1); x=[l for l in adm.cmd('INFO','commandstats').decode().split('\r\n') if 'blpop' in l]; adm.cmd('RPUSH','k','1'); rd(W); y=[l for l in adm.cmd('INFO','commandstats').decode().split('\r\n') if 'blpop' in l]; W.close(); import re; return [re.sub(r'usec[^,]*,|usec_per_call[^,]*,','',z) for z in x+y]
@sc
def monitor():
    m=C(); m.cmd('MONITOR'); W=C(); W.send('BLPOP','k','0'); time.sleep(.2); a=[]
    while m.pending(.1): a.append(m.read()[1].split(b'"')[1::2])
    adm.cmd('RPUSH','k','1'); rd(W)
    while m.pending(.2): a.append(m.read()[1].split(b'"')[1::2])
    W.close(); m.close(); waitb(0); return [x for x in a if x[0] in(b'BLPOP',b'RPUSH')]
@sc
def reset_quit():
    out=[]
    W=C(); W.raw(W.enc(['BLPOP','k','0'])+W.enc(['QUIT'])); waitb(1); adm.cmd('RPUSH','k','1'); out.append([rd(W),rd(W),rd(W)]); W.close(); waitb(0)
    W=C(); W.cmd('MULTI'); W.cmd('BLPOP','k','0'); W.cmd('CLIENT','REPLY','OFF') if 0 else None; out.append(W.cmd('EXEC')); W.close(); return out
@sc
def idle_timeout():
    adm.cmd('CONFIG','SET','timeout','1'); W=C(); W.send('BLPOP','k','0'); t=time.time(); r=rd(W,3.5); adm.cmd('PING') ; adm.cmd('CONFIG','SET','timeout','0'); W.close(); return r
adm=C()
adm.cmd('FLUSHALL')
for f in S:
    if only and f.__name__ not in only: continue
    try: print(f.__name__,'=>',f(),flush=True)
    except Exception as e:
        print(f.__name__,'EXC',repr(e),flush=True); adm=C(); adm.cmd('CLIENT','UNPAUSE'); adm.cmd('CONFIG','SET','timeout','0'); adm.cmd('CLIENT','KILL','TYPE','normal'); adm=C(); adm.cmd('FLUSHALL')
