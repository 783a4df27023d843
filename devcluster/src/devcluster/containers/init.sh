# The first process of a container node, in fresh network, mount and process namespaces. Arguments: PYTHON FOLDER.
set -e
mount --make-rshared /          # volumes that the kubelet mounts must appear in containers
mount -t tmpfs tmpfs /run       # sockets, locks and network namespaces of the node's programs stay its own
mkdir -p /run/lock /run/node
mount --bind "$2" /run/node     # a short name for the node's folder: paths of sockets are limited
exec "$1" -P -m devcluster.supervisor "$2" 0 --keep-orphans
