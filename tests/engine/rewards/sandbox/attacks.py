"""What a hostile tenant tries: each attack is the body of ``attack(item)`` and answers 1.0 when it got through.

``item`` holds the canaries: ``file`` (readable by everybody), ``folder`` (writable by everybody), ``port`` (loopback), ``abstract`` and
``path`` (Unix listeners), ``pid`` (the process that runs the tests), ``secret`` split in two so that it is not in the source.
"""

from __future__ import annotations

import textwrap

PRELUDE = """
import ctypes, os, sys, socket, struct
X86 = os.uname().machine == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)

def sc(x86, arm, *arguments):
    number = x86 if X86 else arm
    answer = libc.syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), "denied")
    return answer

def buffer(text):
    return ctypes.create_string_buffer(text.encode() if isinstance(text, str) else text)

def attack(item):
{body}
    return 1.0

def grade(sample, item):
    try:
        return attack(item)
    except Exception:
        return 0.0
"""


def source(body: str) -> str:
    return PRELUDE.replace("{body}", textwrap.indent(textwrap.dedent(body).strip(), "    "))


FILES = {
    "open": "open(item['file']).read()",
    "os_open": "os.open(item['file'], os.O_RDONLY)",
    "open_path_only": "os.open(item['file'], os.O_PATH)",
    "passwd": "open('/etc/passwd').read()",
    "os_release": "open('/usr/lib/os-release').read()",
    "listdir": "os.listdir('/')",
    "stat": "os.stat(item['file'])",
    "exists": "return float(os.path.exists(item['file']) or os.path.exists('/etc'))",
    "readlink": "os.readlink('/proc/self/exe')",
    "environ_of_self": "open('/proc/self/environ').read()",
    "environ_of_parent": "open(f\"/proc/{item['pid']}/environ\").read()",
    "root_of_init": "open('/proc/1/root' + item['file']).read()",
    "own_memory": "open('/proc/self/mem', 'r+b')",
    "descriptors": "os.listdir('/proc/self/fd')",
    "scan_proc": "return float(any(os.path.exists(f'/proc/{pid}') for pid in range(1, 5000)))",
    "harness_source": "import inspect; open(sys._getframe(1).f_back.f_code.co_filename).read()",
    "raw_open": "sc(2 if X86 else 56, 56, buffer(item['file']), 0, 0)",
    "raw_openat": "sc(257, 56, -100, buffer(item['file']), 0, 0)",
    "raw_openat2": "sc(437, 437, -100, buffer(item['file']), buffer(bytes(24)), 24)",
    "raw_creat": "sc(85, 56, buffer(item['folder'] + '/creat'), 0o644)",
    "statx": "sc(332, 291, -100, buffer(item['file']), 0, 0xfff, buffer(bytes(256)))",
    "write": "open(item['folder'] + '/write', 'w').write('x')",
    "append": "open(item['file'], 'a').write('x')",
    "mkdir": "os.mkdir(item['folder'] + '/mkdir')",
    "symlink": "os.symlink('/etc', item['folder'] + '/symlink')",
    "hard_link": "os.link(item['file'], item['folder'] + '/link')",
    "rename": "os.rename(item['file'], item['folder'] + '/renamed')",
    "unlink": "os.unlink(item['file'])",
    "chmod": "os.chmod(item['file'], 0o777)",
    "truncate": "os.truncate(item['file'], 0)",
    "fifo": "os.mkfifo(item['folder'] + '/fifo')",
    "xattr": "os.setxattr(item['file'], 'user.x', b'x')",
    "utime": "os.utime(item['file'])",
    "chdir": "os.chdir(item['folder'])",
    "shared_memory": "open('/dev/shm/marlaas-canary', 'w').write('x')",
    "temporary_file": "import tempfile; tempfile.TemporaryFile()",
    "memfd": "os.memfd_create('x')",
    "device": "open('/dev/vda', 'rb').read(1)",
    "random_device": "open('/dev/urandom', 'rb').read(1)",
    "module_beside_the_libraries": "import pip",
    "the_project": "import engine",
    "sqlite": "import sqlite3; sqlite3.connect(item['folder'] + '/db').execute('create table t(x)')",
    "shm_segment": "sc(29, 194, 0, 4096, 0o1666)",
    "message_queue": "sc(240, 180, buffer('/q'), 0o102, 0o600, None)",
}

PROCESSES = {
    "fork": "if os.fork() == 0: os._exit(0)",
    "fork_bomb": """
        while True:
            os.fork()
        """,
    "raw_clone": "sc(56, 220, 17, 0, 0, 0, 0)",
    "raw_vfork": "sc(58 if X86 else 220, 220, 0x4111, 0, 0, 0, 0)",
    "raw_clone3": "sc(435, 435, buffer(bytes(88)), 88)",
    "clone_a_namespace": "sc(56, 220, 0x10000011, 0, 0, 0, 0)",
    "subprocess": "import subprocess; subprocess.run(['/bin/true'])",
    "shell": "return float(os.system('true') == 0)",
    "popen": "return float(os.popen('echo x').read() != '')",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "exec": "os.execv('/bin/true', ['true'])",
    "execveat": "sc(322, 281, -100, buffer('/bin/true'), None, None, 0)",
    "multiprocessing": "import multiprocessing; multiprocessing.Process(target=print).start()",
    "thread": "import threading; threading.Thread(target=print).start()",
    "thread_bomb": """
        import _thread
        for _ in range(1000):
            _thread.start_new_thread(print, ())
        """,
    "pool": "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor(1).submit(print).result()",
    "kill_parent": "os.kill(os.getppid(), 9)",
    "kill_tests": "os.kill(item['pid'], 0)",
    "kill_init": "os.kill(1, 0)",
    "kill_all": "os.kill(-1, 9)",
    "kill_group": "os.killpg(0, 9)",
    "queue_signal": "sc(129, 138, item['pid'], 0, buffer(bytes(128)))",
    "tgkill": "sc(234, 131, item['pid'], item['pid'], 0)",
    "descriptor_owner": "import fcntl; fcntl.fcntl(4, 8, item['pid'])",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, -20)",
    "affinity": "os.sched_setaffinity(0, {0})",
    "realtime": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "raise_a_limit": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "read_a_limit": "import resource; resource.getrlimit(resource.RLIMIT_AS)",
    "prlimit": "sc(302, 261, 0, 9, buffer(struct.pack('<QQ', 2**64 - 1, 2**64 - 1)), None)",
    "become_root": "os.setuid(0)",
    "become_root_again": "os.setresuid(0, 0, 0)",
    "groups": "os.setgroups([0])",
    "hostname": "sc(63, 160, buffer(bytes(400)))",
    "survive_the_pool": "sc(157, 167, 1, 0, 0, 0, 0)",
    "dumpable": "sc(157, 167, 4, 1, 0, 0, 0)",
    "session": "os.setsid()",
    "timer": "sc(222, 107, 0, None, buffer(bytes(8)))",
}

NETWORK = {
    "loopback": "socket.create_connection(('127.0.0.1', item['port']), 1)",
    "loopback_v6": "socket.socket(socket.AF_INET6).connect(('::1', item['port']))",
    "datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', item['port']))",
    "abstract": "socket.socket(socket.AF_UNIX).connect('\\0' + item['abstract'])",
    "unix_path": "socket.socket(socket.AF_UNIX).connect(item['path'])",
    "socket_pair": "socket.socketpair()",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "alg": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "names": "socket.gethostbyname('example.org')",
    "urllib": "import urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{item['port']}/\", timeout=1)",
    "asyncio": "import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', item['port']))",
    "raw_socket": "sc(41, 198, 2, 1, 0)",
    "pass_a_descriptor": "sc(46, 211, 4, buffer(bytes(56)), 0)",
    "take_a_descriptor": "sc(47, 212, 3, buffer(bytes(56)), 0)",
    "accept": "sc(288, 242, 3, None, None, 0)",
    "inherited": """
        for fd in range(5, 1024):
            try:
                os.write(fd, b"x")
            except OSError as error:
                if error.errno != 9:
                    raise
            else:
                return 1.0
        return 0.0
        """,
}

# Calls that end the process: no honest program makes them.
KERNEL = {
    "name_to_handle": "sc(303, 264, -100, buffer(item['file']), buffer(bytes(136)), buffer(bytes(8)), 0)",
    "clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
    "io_uring": "sc(425, 425, 8, buffer(bytes(120)))",
    "bpf": "sc(321, 280, 0, buffer(bytes(120)), 120)",
    "userfaultfd": "sc(323, 282, 1)",
    "perf": "sc(298, 241, buffer(bytes(128)), 0, -1, -1, 0)",
    "ptrace_me": "sc(101, 117, 0, 0, 0, 0)",
    "ptrace_parent": "sc(101, 117, 16, item['pid'], 0, 0)",
    "read_memory": "sc(310, 270, item['pid'], buffer(bytes(16)), 1, buffer(bytes(16)), 1, 0)",
    "write_memory": "sc(311, 271, item['pid'], buffer(bytes(16)), 1, buffer(bytes(16)), 1, 0)",
    "kcmp": "sc(312, 272, item['pid'], item['pid'], 0, 0, 0)",
    "pidfd_open": "os.pidfd_open(item['pid'])",
    "pidfd_getfd": "sc(438, 438, 3, 0, 0)",
    "keys": "sc(250, 219, 0, -3, 0, 0, 0)",
    "seccomp_again": "sc(317, 277, 1, 0, None)",
    "unshare": "sc(272, 97, 0x10000000)",
    "setns": "sc(308, 268, 3, 0)",
    "mount": "sc(165, 40, buffer('none'), buffer('/tmp'), buffer('tmpfs'), 0, None)",
    "chroot": "os.chroot('/')",
    "personality": "sc(135, 92, 0x0040000)",
    "module": "sc(175, 105, None, 0, buffer(''))",
    "open_by_handle": "sc(304, 265, -100, buffer(bytes(136)), 0)",
    "secret_memory": "sc(447, 447, 0)",
    "reboot": "sc(169, 142, 0, 0, 0, None)",
}

MEMORY_TRICKS = {
    "executable_memory": "import mmap; mmap.mmap(-1, 4096, prot=7)",
    "make_executable": """
        area = buffer(bytes(8192))
        page = (ctypes.addressof(area) + 4095) & ~4095
        if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(4096), 7) != 0:
            raise OSError("denied")
        """,
    "callback": "ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)()",
    "futex_requeue": "sc(202, 98, buffer(bytes(8)), 3, 0, 0, buffer(bytes(8)), 0)",
    "lock_memory": "sc(149, 228, buffer(bytes(4096)), 4096)",
    "duplicate_replies": "os.dup2(4, 63)",
    "splice": "sc(275, 76, 0, None, 4, None, 10, 0)",
    "ioctl": "import fcntl; fcntl.ioctl(0, 0x5412, b'x')",
}

SECRETS = {
    "environment": "return float(any(item['head'] + item['tail'] in value for value in os.environ.values()))",
    "raw_environment": """
        environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
        index = 0
        while environ and environ[index]:
            if (item["head"] + item["tail"]).encode() in environ[index]:
                return 1.0
            index += 1
        return 0.0
        """,
    "objects": """
        import gc
        secret = item["head"] + item["tail"]
        for found in gc.get_objects():
            if type(found) is dict and any(type(value) is str and secret in value for value in list(found.values())):
                return 1.0
        return 0.0
        """,
    "frames": """
        frame = sys._getframe()
        while frame:
            if item["head"] + item["tail"] in [v for v in frame.f_locals.values() if type(v) is str]:
                return 1.0
            frame = frame.f_back
        return 0.0
        """,
}

QUIET = {**FILES, **PROCESSES, **NETWORK, **MEMORY_TRICKS, **SECRETS}
FATAL = KERNEL
X86_FATAL = {
    "x32_getpid": "sc(0x40000000 | 39, 39)",
    "x32_open": "sc(0x40000000 | 2, 56, buffer(item['file']), 0)",
}
