package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Dir is the folder of this package in the folder of a run.
const Dir = "cluster"

// LogDir has what pilots print.
const LogDir = Dir + "/log"

const (
	queueDir        = "queue"
	leasesDir       = "leases"
	pilotsDir       = "pilots"
	coordinatorsDir = "coordinators"
	relayDir        = "relay"
)

// Kind is the kind of a line of a journal.
type Kind string

// The kinds of lines of pilots.
const (
	PilotBegan Kind = "pilot_began"
	Alive      Kind = "alive"     // nothing but the number, and Running
	Claimed    Kind = "claimed"   // the pilot has the lease of Attempt
	Published  Kind = "published" // Attempt has a result, with checksum Sum
	Discarded  Kind = "discarded" // the pilot's copy of Attempt was thrown away
	Refused    Kind = "refused"   // the job of Attempt cannot be read, or is not one of this run
	Troubled   Kind = "troubled"  // Attempt could not be published yet, or something else failed
	PilotEnded Kind = "pilot_ended"
)

// The kinds of lines of coordinators.
const (
	CoordinatorBegan Kind = "coordinator_began"
	Queued           Kind = "queued"  // there is a job for Attempt
	Taken            Kind = "taken"   // a pilot has the lease of Attempt
	Settled          Kind = "settled" // Attempt has a result
	Stop             Kind = "stop"    // pilots cancel what they do, and end
	CoordinatorEnded Kind = "coordinator_ended"
	PilotLost        Kind = "pilot_lost" // the pilot Why counts as lost
	PilotBack        Kind = "pilot_back" // the pilot Why does not count as lost any more
	Waiting          Kind = "waiting"    // Why says for what jobs of pilots wait; empty: for nothing
)

// Line is a line of a journal. Which fields are set depends on Kind.
type Line struct {
	Kind Kind      `json:"kind"`
	Seq  int       `json:"seq"`  // 1…, without a gap within a journal
	Time time.Time `json:"time"` // for people: nothing is decided by it
	// Attempt is the name of an attempt: the id of its trial, "-" and its number.
	Attempt string    `json:"attempt,omitempty"`
	Sum     string    `json:"sum,omitempty"`
	Why     string    `json:"why,omitempty"`
	Running []Running `json:"running,omitempty"`
	Pilot   *Identity `json:"pilot,omitempty"`    // with PilotBegan
	Run     *Settings `json:"settings,omitempty"` // with CoordinatorBegan
}

// Running is what a pilot does for one attempt.
type Running struct {
	Attempt string           `json:"attempt"`
	Phase   record.PhaseName `json:"phase,omitempty"`
	Stage   string           `json:"stage,omitempty"`
	Turn    int              `json:"turn,omitempty"`
	Steps   int              `json:"steps,omitempty"`
}

// Identity says who a pilot is.
type Identity struct {
	record.Worker

	Process  node.Process `json:"process"`
	InFlight int          `json:"in_flight"` // attempts at a time
	Berth    string       `json:"berth"`     // version
}

// Settings are what a coordinator tells its pilots.
type Settings struct {
	Run     string       `json:"run"` // id
	Process node.Process `json:"process"`
	Berth   string       `json:"berth"` // version
	// Beat is the longest time between two lines of a pilot, and LostAfter the
	// time without a new line after which a pilot counts as lost.
	Beat      time.Duration `json:"beat_ns"`
	LostAfter time.Duration `json:"lost_after_ns"`
	// Idle is the time without anything to do after which a pilot ends.
	Idle time.Duration `json:"idle_ns"`
	// Digests are those of the program, of plugins by kind and name, and of bundles
	// by name. A pilot with others refuses to work.
	Digests map[string]string `json:"digests,omitempty"`
	// Relay is where pilots reach models and secrets; nil: they need none of the
	// coordinator's.
	Relay *uplink.Place `json:"relay,omitempty"`
	// RelayAddress is where the relay is to listen; empty: at all addresses of the
	// coordinator's machine.
	RelayAddress string `json:"-"`
	// AcceptDrift continues although bundles or images differ from those of
	// earlier attempts.
	AcceptDrift bool `json:"accept_drift,omitempty"`
}

// A journal of one process. Each line is written with one call to a file that is
// opened for it and closed, because other machines see what was written when it
// is closed.
type journal struct {
	file string
	seq  int
	torn bool
}

func createJournal(file string, first Line) (*journal, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if err = f.Close(); err != nil {
		return nil, err
	}
	j := &journal{file: file}
	return j, j.Add(first)
}

// Add appends lines.
func (j *journal) Add(lines ...Line) error {
	var all []byte
	if j.torn { // begin a new line, so that only the incomplete one is lost
		all = append(all, '\n')
	}
	seq := j.seq
	for _, l := range lines {
		seq++
		l.Seq, l.Time = seq, time.Now().UTC()
		b, err := store.Seal(&l)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		all = append(all, b...)
	}
	f, err := os.OpenFile(j.file, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	n, err := f.Write(all)
	j.torn = err != nil && n > 0 || j.torn && n == 0
	if n > 0 { // a number is not used twice, whatever of the lines was written
		j.seq = seq
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Bounds of reading a journal.
const (
	maxLine    = 1 << 20 // bytes of a line
	maxReading = 8 << 20 // bytes read at once
	maxJournal = 4 << 30 // bytes of a journal
	maxEntries = 1_000_000
)

// follower reads a journal while another process writes it.
type follower struct {
	dir, name string
	anyone    bool // it may belong to another user, whose run is only looked at
	offset    int64
	seq       int           // of the last line that was read
	bad       time.Duration // for how long the next line has been unreadable
}

// unreadable is how long a follower waits for a line that fails its checksum: a
// file system may show the length of a file before its content.
const unreadable = 5 * time.Second

// Read returns the lines that are new. passed is the time since the last call.
func (f *follower) Read(passed time.Duration) (lines []Line, err error) {
	file, err := untrusted.Open(f.dir, f.name, maxJournal)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err = ours(file); err != nil && !f.anyone {
		return nil, err
	}
	fi, err := file.Stat()
	if err != nil || fi.Size() <= f.offset {
		return nil, err
	}
	b := make([]byte, min(fi.Size()-f.offset, maxReading))
	n, err := file.ReadAt(b, f.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for b = b[:n]; ; {
		raw, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole && len(b) < maxLine {
			return lines, nil
		}
		var l Line
		ok := whole && store.Unseal(raw, &l)
		if !ok && len(raw) > 0 {
			if f.bad += passed; f.bad < unreadable && len(b) < maxLine {
				return lines, nil
			}
		}
		f.bad = 0
		f.offset += int64(len(b) - len(rest))
		b = rest
		if ok && l.Seq > f.seq {
			f.seq = l.Seq
			lines = append(lines, l)
		}
	}
}

// names that other processes gave, which become parts of paths.
var safe = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,159}$`)

// AttemptName is the name of an attempt in the queue.
func AttemptName(trial string, attempt int) string {
	return fmt.Sprintf("%s-%d", store.Name(trial, 100), attempt)
}

// Job is a file of the queue: an attempt to make.
type Job struct {
	Version int    `json:"version"` // 1
	Run     string `json:"run"`
	Trial   string `json:"trial"` // id
	Attempt int    `json:"attempt"`
	// Plan is the digest of the trial's line of the manifest: a pilot with another
	// plan must not make the attempt.
	Plan string `json:"plan"`
	// Longest is how long the attempt may take at most; 0: not known.
	Longest time.Duration `json:"longest_ns,omitempty"`
}

// SealedLine is a line as it is written, as a type for its schema.
type SealedLine struct {
	Sum   string `json:"sum"` // CRC-32C of the bytes of Entry, 8 hex digits
	Entry Line   `json:"entry"`
}

// SealedJob is a job as it is written, as a type for its schema.
type SealedJob struct {
	Sum   string `json:"sum"` // CRC-32C of the bytes of Entry, 8 hex digits
	Entry Job    `json:"entry"`
}

// maxJob is the largest size of a job in bytes.
const maxJob = 64 << 10

// list returns the names in a folder that end with suffix, without it.
func list(dir, sub, suffix string) ([]string, error) {
	entries, err := untrusted.Dir(dir, sub, maxEntries)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if ok && safe.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// errStranger means that a file belongs to another user.
var errStranger = errors.New("the file belongs to another user")

// own reads a file of the user who runs this process.
func own(dir, name string, limit int64) ([]byte, error) {
	f, err := untrusted.Open(dir, name, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err = ours(f); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// ours fails with errStranger if a file belongs to another user.
func ours(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w (id %d)", f.Name(), errStranger, st.Uid)
	}
	return nil
}

// put gives new content a name that is not taken. Fails with fs.ErrExist.
func put(dir, name string, v any) error {
	b, err := store.Seal(v)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) //nolint:errcheck // it has another name, or none is needed
	_, err = part.Write(b)
	err = errors.Join(err, part.Chmod(0o644), part.Sync(), part.Close())
	if err != nil {
		return err
	}
	return os.Link(part.Name(), filepath.Join(dir, name))
}
