"""A Kubernetes cluster for tests, small enough to read.

`Store` (store.py) holds the objects and is all that in-process controllers need; `ApiServer`
(server.py) serves it over HTTP to real clients: Helm, kubectl, `kubernetes.aio`. `Cluster`
(cluster.py) adds controllers, and a kubelet that turns pods into processes.

The API server is faithful where clients of this project look: names, uid, resourceVersion,
generation, graceful deletion, garbage collection, conflicts, server-side apply with an owner for
each field, merge and strategic merge patches, label selectors, lists in pages, watches with
bookmarks, WatchList and 410, /status and /scale, RBAC by Roles in namespaces, discovery, Secrets as
protobuf, errors in the real words.

Not there: etcd and a second replica, TLS and client certificates, ClusterRoles, admission webhooks,
validation of any kind, custom resource definitions (those that charts use are kinds like others),
other kinds and API versions than those of kinds.py, managedFields (owners are kept, not shown),
JSON patches, dry runs, finalizers, field selectors but for names, quota, priority, scheduling,
exec, port-forward, eviction, deletion of collections and of what a namespace holds, propagation of
a deletion other than in the background, tables for `kubectl get` (it shows names and ages),
aggregated discovery, protobuf of anything but Secrets and the options of a deletion.
"""
