#!/bin/bash
# Pid 1 of one node, in namespaces of its own: node.py starts it and lays all files that it names.
#
# Needs in its environment: NODE (the name), FOLDER (its files), ADDRESS, GATEWAY, PORT (the API server's),
# ROUTES ("NETWORK via ADDRESS;..."), IMAGES (archives), and PATH with the node's programs. What it starts is
# started again when it ends, but for those that a file in FOLDER/stopped names. It never ends by itself: SIGKILL
# of it is the node's crash.
set -euo pipefail

lay_over() { # What the node sees in place of the machine's own file or folder.
    mount --bind "$FOLDER/$1" "$2"
}

lay_beside() { # What the node sees in addition to what the machine's folder holds.
    mount -t overlay overlay -o "lowerdir=$FOLDER/$1:$2" "$2"
}

keep() { # NAME COMMAND...: as a service manager would, unless the service was stopped.
    local name=$1
    shift
    while :; do
        [ -e "$FOLDER/stopped/$name" ] || "$@" >>"$FOLDER/logs/$name.log" 2>&1 || true
        sleep 1
    done &
}

mount -t tmpfs -o mode=755 tmpfs /run
lay_over var-lib /var/lib
lay_over var-log /var/log
mount --bind /var/lib/kubelet /var/lib/kubelet
mount --make-rshared /var/lib/kubelet

# This boot: an id of its own, and an empty kernel log.
cat /proc/sys/kernel/random/uuid >"$FOLDER/boot_id"
lay_over boot_id /proc/sys/kernel/random/boot_id
: >"$FOLDER/kmsg"
lay_over kmsg /dev/kmsg
# What the NVIDIA driver shows of its GPUs.
lay_over proc-driver /proc/driver
# A reboot that something on the node asks for is simulated: by whoever keeps the node.
lay_over sbin /usr/local/sbin
# ... also where a PATH leaves that folder out: the machine's own is out of reach.
[ ! -e /usr/bin/systemctl ] || lay_over sbin/systemctl /usr/bin/systemctl

# The kubelet sets these for the whole machine: here it sets files.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    mkdir -p "$FOLDER/sys/${setting%/*}"
    cat "/proc/sys/$setting" >"$FOLDER/sys/$setting"
    lay_over "sys/$setting" "/proc/sys/$setting"
done

hostname "$NODE"
until [ -e /sys/class/net/eth0 ] && ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip address add "$ADDRESS/24" dev eth0
ip link set eth0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
IFS=';' read -ra routes <<<"$ROUTES"
for route in "${routes[@]}"; do
    # shellcheck disable=SC2086 # its words are arguments
    ip route add $route
done

# Devices that the machine does not have. Not before the wait for eth0: what was missing stays so for an overlay.
lay_beside sys-bus /sys/bus
lay_beside sys-class /sys/class

keep containerd containerd --config "$FOLDER/containerd.toml"
until ctr version >/dev/null 2>&1; do sleep 0.05; done
for image in $IMAGES; do
    ctr --namespace k8s.io images import "$image" >>"$FOLDER/logs/images.log" 2>&1
done

until (exec 3<>"/dev/tcp/$GATEWAY/$PORT") 2>/dev/null; do sleep 0.1; done
keep kube-proxy kube-proxy --config "$FOLDER/kube-proxy.yaml"
keep kubelet kubelet --config "$FOLDER/kubelet.yaml" --kubeconfig "$FOLDER/kubelet.kubeconfig" \
    --hostname-override "$NODE" --node-ip "$ADDRESS" --cert-dir "$FOLDER/kubelet-certificates"
keep gpu-plugin gpu-plugin --ids-file "$FOLDER/gpus"
wait
