import socket,time
class Err(Exception): pass
class Conn:
    def __init__(s,port,proto=2,timeout=20,host='127.0.0.1'):
        s.s=socket.create_connection((host,port),timeout=timeout); s.s.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1); s.b=b''
        if proto==3: s.cmd('HELLO','3')
    @staticmethod
    def enc(args):
        o=b'*%d\r\n'%len(args)
        for a in args:
            if isinstance(a,str): a=a.encode('latin1')
            elif isinstance(a,int): a=str(a).encode()
            o+=b'$%d\r\n%s\r\n'%(len(a),a)
        return o
    def send(s,*a): s.s.sendall(s.enc(a))
    def raw(s,b): s.s.sendall(b)
    def _line(s):
        while b'\r\n' not in s.b: s._more()
        l,s.b=s.b.split(b'\r\n',1); return l
    def _more(s):
        d=s.s.recv(1<<16)
        if not d: raise EOFError
        s.b+=d
    def read(s):
        l=s._line(); t,r=l[:1],l[1:]
        if t in b'+': return ('+',r)
        if t==b'-': return ('-',r)
        if t==b':': return int(r)
        if t==b'_': return ('null',)
        if t==b'#': return ('bool',r)
        if t==b',': return ('dbl',r)
        if t in (b'$',b'=',b'!'):
            n=int(r)
            if n<0: return ('$-1',)
            while len(s.b)<n+2: s._more()
            d,s.b=s.b[:n],s.b[n+2:]; return d
        if t in (b'*',b'~',b'>'):
            n=int(r)
            if n<0: return ('*-1',)
            return [t]+[s.read() for _ in range(n)]
        if t==b'%':
            return [t]+[s.read() for _ in range(2*int(r))]
        raise Exception('bad %r'%l)
    def cmd(s,*a): s.send(*a); return s.read()
    def pending(s,t=0.0):
        if s.b: return True
        import select
        return bool(select.select([s.s],[],[],t)[0])
    def close(s): s.s.close()
