package task

import (
	"path"
	"slices"
)

// Role is a party that gets a view of the task.
type Role string

// The roles. The oracle is an agent that was given the reference solution.
const (
	RoleAgent    Role = "agent"
	RoleVerifier Role = "verifier"
	RoleUser     Role = "user"
	RoleOracle   Role = "oracle"
)

// Resource is a file or folder of the task that the host is not the only one to
// need.
type Resource struct {
	// Name is the slash-separated path in every view that has the resource,
	// such as "references/map.png". It is unique in the task.
	Name string `json:"name"`
	// Path is the slash-separated path on the host within the task's folder. It is
	// empty for a folder whose entries all have a Text.
	Path string `json:"path"`
	// Audience are the roles that may see it. Empty means the host only; see Public.
	Audience []Role `json:"audience,omitempty"`
	// Secret content never reaches a log, a report or a stored copy.
	Secret bool `json:"secret,omitempty"`
	// Place is where the resource is put in the sandbox: an absolute path, or
	// one relative to the working directory of the sandbox. Empty means that
	// it is only in the views.
	Place string `json:"place,omitempty"`
	// Phase is when it is placed; empty only when Place is.
	Phase PlacePhase `json:"phase,omitempty"`
	// Stage is the name of the stage it belongs to; empty means all stages.
	Stage string `json:"stage,omitempty"`
	// Folder says that Path is a folder. Its content is exactly Entries; files
	// that the format leaves out do not appear. Entries of a file are empty.
	Folder  bool    `json:"folder,omitempty"`
	Entries []Entry `json:"entries,omitempty"`
}

// Entry is one file below a folder resource, or an empty folder.
type Entry struct {
	// Path is slash-separated and relative to the resource.
	Path string `json:"path"`
	// Mode holds the permission bits (0o777).
	Mode uint32 `json:"mode"`
	// Size is in bytes; 0 for folders and links.
	Size   int64 `json:"size,omitempty"`
	Folder bool  `json:"folder,omitempty"`
	// Link is the target of a symbolic link that stays within the resource.
	Link string `json:"link,omitempty"`
	// From is the slash-separated path within the task's folder of the content,
	// if it is not below the resource's own Path.
	From string `json:"from,omitempty"`
	// Text is the content of a file that the format made itself, such as a solution
	// that the dataset has in another form. Empty means that the content is a file
	// on the host. The digest of the task covers it.
	Text string `json:"text,omitempty"`
}

// PlacePhase is the moment at which a resource is put into the sandbox.
type PlacePhase string

// The moments.
const (
	PlaceCreate PlacePhase = "create" // once, when the sandbox is made
	PlaceSetup  PlacePhase = "setup"  // at the start of its stage
	PlaceTurn   PlacePhase = "turn"   // before the turn of a role of its audience (the oracle's solution)
	PlaceVerify PlacePhase = "verify" // after the agent's access is cut, into a place made afresh
)

// Public returns the audience of a resource that every role may see.
func Public() []Role { return []Role{RoleAgent, RoleVerifier, RoleUser} }

// HostFile returns the absolute path on this host of the content of an entry
// of r, or of r itself when e is nil.
func (t *Task) HostFile(r *Resource, e *Entry) string {
	switch {
	case e == nil:
		return t.HostPath(r.Path)
	case e.From != "":
		return t.HostPath(e.From)
	default:
		return t.HostPath(path.Join(r.Path, e.Path))
	}
}

// made reports whether nothing of the resource is a file on the host.
func (r *Resource) made() bool {
	return r.Folder && len(r.Entries) > 0 && !slices.ContainsFunc(r.Entries, func(e Entry) bool { return e.Text == "" })
}

// For reports whether role may see the resource in a stage. An oracle sees what
// an agent sees and also resources for the oracle alone.
func (r *Resource) For(role Role, stage string) bool {
	if r.Stage != "" && r.Stage != stage {
		return false
	}
	if slices.Contains(r.Audience, role) {
		return true
	}
	return role == RoleOracle && slices.Contains(r.Audience, RoleAgent)
}
