// Package inside turns a process that was cloned into new namespaces into the
// first process of a sandbox: mounts, devices, loopback, a new root.
//
// It runs before any program of the sandbox, and every step that fails ends the
// process. It must not read configuration, talk to the network, start a
// goroutine, or continue after an error. It must not import gRPC, because it is
// part of local-init, which is started for every sandbox.
package inside

// Channel is the descriptor on which the plan arrives and a Failure is
// returned.
const Channel = 3

// Ready is sent on Channel when all steps have succeeded. A Failure may still follow if sandboxd cannot be executed.
const Ready = "ready"

// MaxPlan is the longest plan in bytes, because the plan is sent as one packet.
const MaxPlan = 128 << 10

// Plan describes the sandbox to build. It is sent as JSON over Channel. The
// plugin checks everything that comes from a task: it decides paths on the host
// itself, and paths inside are resolved only after the root was changed.
type Plan struct {
	// Outside are the links /proc/self/ns/{user,mnt,pid} of the plugin. If one
	// of these namespaces is also ours, the process fails.
	Outside map[string]string `json:"outside"`
	// Nested says that id 0 of the plugin's user namespace is not the host's.
	Nested  bool     `json:"nested,omitempty"`
	Staging string   `json:"staging"`           // an existing folder; covered by a tmpfs in our mount namespace only
	Layers  []Layer  `json:"layers"`            // visible folders of the host, parents first
	Links   []Link   `json:"links,omitempty"`   // symbolic links at the root: bin → usr/bin on a merged system
	Fresh   []Folder `json:"fresh,omitempty"`   // new folders, parents first
	Control *Source  `json:"control,omitempty"` // mounted read-only at /berth; nil only with Probe
	Mounts  []Mount  `json:"mounts,omitempty"`  // further read-only folders
	Files   int      `json:"files,omitempty"`   // descriptor of a tar archive to unpack at the root; 0: none
	Workdir string   `json:"workdir,omitempty"` // absolute; made if it does not exist
	// Nameserver is the address of a resolver if the sandbox has a public
	// network. Otherwise it is empty.
	Nameserver string `json:"nameserver,omitempty"`
	Host       string `json:"host"`               // name of the machine inside
	SizeMiB    int64  `json:"size_mib,omitempty"` // of everything the sandbox can write, MiB; 0: the kernel's default, half of the memory
	ShmMiB     int64  `json:"shm_mib,omitempty"`  // of /dev/shm, MiB; 0: a folder like any other
	Nproc      uint64 `json:"nproc,omitempty"`    // processes per user; 0: the plugin's own limit
	PtsGroup   bool   `json:"pts_group"`          // group 5 (tty) is mapped
	Probe      bool   `json:"probe,omitempty"`    // build the sandbox, then end instead of becoming sandboxd
	Break      string `json:"break,omitempty"`    // name of a step that must fail; only tests set it
}

// Layer is one visible folder, or parts of one.
type Layer struct {
	Target string   `json:"target"` // relative to the root: "usr"
	Lower  []Source `json:"lower"`  // topmost first: skeleton, then the host's
	// Parts are the folders of Lower that are mounted, each by itself, at the
	// same path below Target, parents first. "." is all of it.
	Parts []string `json:"parts"`
}

// Source is a folder of the host: a path or, if FD is set, the n-th descriptor
// that was sent with the plan (from 1), which is a detached mount.
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

// Failure is sent over Channel if a step fails.
type Failure struct {
	Step  string `json:"step"`
	Errno int    `json:"errno,omitempty"` // 0 if no system call failed
	Text  string `json:"text"`
}
