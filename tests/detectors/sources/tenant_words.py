"""Text that tenants can put into the kernel's log without any permission: the kernel's texts that quote names
of their choice.

Each text is written as the kernel prints it. `{name}` is the name that a process gives itself, at most 15
bytes of anything but NUL (prctl PR_SET_NAME, the file's name at exec), or the name of a network interface,
which has the same length. `{long}` is longer: a path, a cgroup, an option, a version that a client claims.
The texts were collected from Linux 4.18 to 6.18 and NVIDIA's open driver R515 to R595.
"""

# ruff: noqa: E501  the kernel's lines are kept whole

from __future__ import annotations

__all__ = ["COMM_BYTES_MAX", "FIREWALL_TEXTS", "NAMED_TEXTS", "escaped"]

COMM_BYTES_MAX = 15

NAMED_TEXTS: tuple[str, ...] = (
    # The name comes first.
    "{name}[4711]: segfault at 0 ip 0000000000401136 sp 00007ffd1c5d9a50 error 6 in {long}[401000+1000] likely on CPU 1 (core 0, socket 0)",  # arch/x86/mm/fault.c
    "{name}[4711]: unhandled exception: DABT (lower EL), ESR 0x0000000092000046, level 2 translation fault in {long}[aaaa0000+1000]",  # arch/arm64/kernel/traps.c
    "{name}[4711]: segfault (11) at 0 nip 10000738 lr 1000071c code 1 in {long}[10000000+10000]",  # arch/powerpc/kernel/traps.c
    "{name}[4711]: unhandled signal 11 code 0x1 at 0x0000000000000000 in {long}[10000+1000]",  # arch/riscv/kernel/traps.c
    "{name}[4711] bad frame in rt_sigreturn frame:00007ffd0 ip:401136 sp:7ffd0 orax:f in {long}[401000+1000]",  # arch/x86/kernel/signal.c
    "{name}[4711] vsyscall attempted with vsyscall=none ip:ffffffffff600000 cs:33 sp:7ffd0 ax:60 si:0 di:0",  # arch/x86/entry/vsyscall
    "{name}: Corrupted page table at address 7f0000000000",  # arch/x86/mm/fault.c
    "{name}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null),cpuset={long},mems_allowed=0-1",  # mm/page_alloc.c
    "{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999",  # mm/oom_kill.c
    "{name} (4711): drop_caches: 3",  # fs/drop_caches.c
    "{name} (4711) used greatest stack depth: 11016 bytes left",  # kernel/exit.c
    "{name}/4711: potentially unexpected fatal signal 11.",  # kernel/signal.c
    "{name} (4711): Using mlock ulimits for SHM_HUGETLB is obsolete",  # fs/hugetlbfs/inode.c
    "{name} (4711): /proc/4711/oom_adj is deprecated, please use /proc/4711/oom_score_adj instead.",  # fs/proc/base.c
    "{name}[4711]: memfd_create() called without MFD_EXEC or MFD_NOEXEC_SEAL set",  # mm/memfd.c
    "{name} uses obsolete (PF_INET,SOCK_PACKET)",  # net/packet/af_packet.c
    "{name}: attempt to access beyond end of device\n{name}: rw=0, sector=8, nr_sectors = 8 limit=0",  # block/blk-core.c
    "{name}: sending ioctl 5331 to a partition!",  # block/scsi_ioctl.c
    "{name}: renamed from {name}",  # net/core/dev.c: an interface
    "{name}: entered promiscuous mode",
    "{name} (unregistering): left allmulticast mode",
    "{name}: port 1({name}) entered blocking state",  # net/bridge/br_stp.c
    "           {name}-4711    [001] .....    12.345678: tracing_mark_write: {long}",  # kernel/trace: tp_printk
    # A fixed word comes first.
    "traps: {name}[4711] general protection fault ip:401136 sp:7ffd1c5d9a50 error:0 in {long}[401000+1000]",
    "traps: {name}[4711] trap invalid opcode ip:401136 sp:7ffd1c5d9a50 error:0 in {long}[401000+1000]",
    "umip: {name}[4711] ip:401136 sp:7ffd1c5d9a50: SGDT instruction cannot be used by applications.",
    "x86/split lock detection: #AC: {name}/4711 took a split_lock trap at address: 0x401136",
    "mmap: {name} (4711): VmData 69632 exceed data ulimit 4096. Update limits or use boot option ignore_rlimit_data.",
    "INFO: task {name}:4711 blocked for more than 120 seconds.",
    "task:{name} state:D stack:0     pid:4711  tgid:4711  ppid:1      flags:0x00004002",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [{name}:4711]",
    "CPU: 1 PID: 4711 Comm: {name} Tainted: P           OE      6.8.0 #1",
    "RT Watchdog Timeout (soft): {name}[4711]",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={long},mems_allowed=0-1,oom_memcg=/{long},task_memcg=/{long},task={name},pid=4711,uid=0",
    "Memory cgroup out of memory: Killed process 4711 ({name}) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:999",
    "Out of memory: Killed process 4711 ({name}) total-vm:1kB",
    "oom_reaper: reaped process 4711 ({name}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "[   4711]     0  4711     1024      128    65536        0           999 {name}",
    "Memory cgroup stats for /{long}:",
    "memory: usage 1048576kB, limit 1048576kB, failcnt 24",
    "cgroup: fork rejected by pids controller in /{long}",
    'cgroup: {name} (4711) created nested cgroup for controller "memory" which has incomplete hierarchy support.',
    "process '{long}' started with executable stack",
    "warning: process `{name}' used the deprecated sysctl system call with 1.23.",
    "warning: `{name}' uses 32-bit capabilities (legacy support in use)",
    "capability: warning: `{name}' uses deprecated v2 capabilities in a way that may be insecure",
    "netlink: 12 bytes leftover after parsing attributes in process `{name}'.",
    "TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:8080. Sending cookies.",
    "device {name} entered promiscuous mode",
    "IPv6: ADDRCONF(NETDEV_CHANGE): {name}: link becomes ready",
    "coredump: 4711({name}): over core_pipe_limit, skipping core dump",
    "Core dump to |{long} pipe failed",
    'ptrace attach of "{long}"[4711] was attempted by "{long}"[4712]',
    'audit: type=1326 audit(1763900000.123:42): auid=0 uid=0 gid=0 ses=1 pid=4711 comm="{name}" exe="{long}" sig=31 arch=c000003e syscall=1 compat=0 ip=0x0 code=0x0',
    'audit: type=1400 audit(1763900000.123:43): apparmor="DENIED" operation="open" profile="{long}" name="{long}" pid=4711 comm="{name}"',
    "audit: type=1100 audit(1763900000.123:44): pid=4711 uid=0 auid=0 ses=1 msg='{long}'",
    "EXT4-fs error (device sda1): ext4_lookup:1851: inode #2: comm {name}: deleted inode referenced: 13",
    "EXT4-fs warning (device sda1): ext4_dx_add_entry:2519: inode #2: comm {name}: Directory index full!",
    "EXT4-fs (loop0): mounted filesystem {long} r/w with ordered data mode. Quota mode: none.",
    'EXT4-fs (loop0): Unrecognized mount option "{long}" or missing value',
    "XFS (loop0): {long}",
    "BTRFS: device label {long} devid 1 transid 6 /dev/loop0 scanned by {name} (4711)",
    'FAT-fs (loop0): Unrecognized mount option "{long}" or missing value',
    "tmpfs: Unknown parameter '{long}'",  # a mount in a user namespace
    "overlay: Unknown parameter '{long}'",
    "overlayfs: failed to resolve '{long}': -2",
    "fuse: Unknown parameter '{long}'",
    "NFS: Server {long} reports our clientid is in use",
    "nfs: server {long} not responding, still trying",
    "CIFS: Attempting to mount \\\\{long}",
    "VFS: Busy inodes after unmount of {long} ({name})",
    "device-mapper: ioctl: {long}: device is in use",
    "md/raid1:{long}: active with 2 out of 2 mirrors",
    "loop0: detected capacity change from 0 to 8",
    "input: {long} as /devices/virtual/input/input7",
    "usb 1-1: Product: {long}",
    "[U] {long}",  # drivers/char/ttyprintk.c
    "nvidia-modeset: ERROR: GPU:0: {long}",
    "NVRM: API mismatch: the client has the version {long}, but\nNVRM: this kernel module has the version 550.54.14.  Please\nNVRM: make sure that this kernel module and all NVIDIA driver",
    "NVRM: API mismatch: the client '{name}' (pid 4711)\nNVRM: has the version {long}, but this kernel module has\nNVRM: the version 595.45.04.",
)

FIREWALL_TEXTS: tuple[str, ...] = (
    "{long}IN=eth0 OUT= MAC=02:42:ac:11:00:02:02:42:ac:11:00:01:08:00 SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TOS=0x00 PREC=0x00 TTL=64 ID=1 DF PROTO=TCP SPT=1 DPT=2 WINDOW=1 RES=0x00 SYN URGP=0 ",
    "{long}IN= OUT=lo SRC=fe80:0000:0000:0000:0000:0000:0000:0001 DST=fe80:0000:0000:0000:0000:0000:0000:0002 LEN=60 ",
    "{long}IN= OUT=eth0 ARP HTYPE=1 PTYPE=0x0800 OPCODE=1 MACSRC=02:42:ac:11:00:02 IPSRC=10.0.0.1 MACDST=00:00:00:00:00:00 IPDST=10.0.0.2",
    "{long}IN=eth0 OUT= MAC=02:42:ac:11:00:02:02:42:ac:11:00:01:88:b5 ",
    "{long} IN=eth0 OUT=eth1 MAC source = 02:42:ac:11:00:02 MAC dest = 02:42:ac:11:00:01 proto = 0x0800",
)
"""Texts with a free prefix of up to 127 bytes. CAP_NET_ADMIN in the node's own network, or in any network if
nf_log_all_netns is 1, allows them."""


def escaped(text: bytes) -> bytes:
    """Returns the text as /dev/kmsg shows it, without bytes that could end a record (kernel/printk,
    msg_print_ext_body)."""
    return b"".join(
        bytes([byte]) if 32 <= byte < 127 and byte != ord("\\") else b"\\x%02x" % byte for byte in text
    )
