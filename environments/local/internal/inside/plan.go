// Package inside turns a process that was cloned into fresh namespaces into
// the first process of a sandbox: mounts, devices, loopback, a new root.
//
// It runs before anything foreign does and it fails closed: every step that
// does not succeed ends the process. It must not read configuration, talk to
// the network, start a goroutine, or go on after an error, whatever the error
// is. It must not import gRPC: it is part of local-init, which is started for
// every sandbox.
package inside

// Channel is the descriptor on which the plan comes and a Failure goes back.
const Channel = 3

// Ready goes back over Channel when all steps succeeded; a Failure may still
// follow, when sandboxd cannot be executed.
const Ready = "ready"

// Version is that of Plan. The plugin and local-init are built together; a
// local-init of another build refuses.
const Version = 1

// MaxPlan is the longest plan in bytes: one packet.
const MaxPlan = 128 << 10

// Plan is what the plugin wants, sent as JSON over Channel. Nothing in it is
// taken from a task unseen: paths on the host are decided by the plugin, paths
// inside are resolved only after the root was changed.
type Plan struct {
	Version int `json:"version"`
	// Outside are the links /proc/self/ns/{user,mnt,pid} of the plugin. Where
	// one of them is ours, too, nothing is done.
	Outside map[string]string `json:"outside"`
	// Nested says that id 0 of the plugin's user namespace is not the host's.
	Nested  bool     `json:"nested,omitempty"`
	Staging string   `json:"staging"`           // an existing folder; covered by a tmpfs in our mount namespace only
	Layers  []Layer  `json:"layers"`            // visible folders of the host, parents first
	Links   []Link   `json:"links,omitempty"`   // symbolic links at the root: bin → usr/bin on a merged system
	Fresh   []Folder `json:"fresh,omitempty"`   // folders of our own, parents first
	Control *Source  `json:"control,omitempty"` // mounted read-only at /berth; nil only with Probe
	Mounts  []Mount  `json:"mounts,omitempty"`  // further read-only folders
	Files   int      `json:"files,omitempty"`   // descriptor of a tar archive to unpack at the root; 0: none
	Workdir string   `json:"workdir,omitempty"` // absolute; made if it is not there
	// Nameserver is the address of a resolver, where the sandbox has a way out;
	// empty: it has none.
	Nameserver string `json:"nameserver,omitempty"`
	Host       string `json:"host"`               // name of the machine inside
	SizeMiB    int64  `json:"size_mib,omitempty"` // of everything the sandbox can write, MiB; 0: the kernel's default, half of the memory
	ShmMiB     int64  `json:"shm_mib,omitempty"`  // of /dev/shm, MiB; 0: a folder like any other
	Nproc      uint64 `json:"nproc,omitempty"`    // processes a user; 0: the plugin's own limit
	PtsGroup   bool   `json:"pts_group"`          // group 5 (tty) is mapped
	Probe      bool   `json:"probe,omitempty"`    // build it, and end instead of becoming sandboxd
	Break      string `json:"break,omitempty"`    // name of a step that is to fail; only tests set it
}

// Layer is one visible folder.
type Layer struct {
	Target string   `json:"target"` // relative to the root: "usr"
	Lower  []Source `json:"lower"`  // topmost first: skeleton, then the host's
}

// Source is a folder of the host: a path, or, if FD is set, the n-th
// descriptor sent along (from 1), which is a detached mount.
type Source struct {
	Path string `json:"path,omitempty"`
	FD   int    `json:"fd,omitempty"`
}

// Link is a symbolic link.
type Link struct {
	Name   string `json:"name"`
	Target string `json:"target"`
}

// Folder is an empty folder, relative to the root.
type Folder struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permission bits and the sticky bit, 0o1777
}

// Mount is a read-only folder of the host.
type Mount struct {
	Source Source `json:"source"`
	Target string `json:"target"` // absolute, clean
}

// Failure is what goes back over Channel when a step did not succeed.
type Failure struct {
	Step  string `json:"step"`
	Errno int    `json:"errno,omitempty"` // 0: no system call was refused
	Text  string `json:"text"`
}
