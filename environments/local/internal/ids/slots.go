package ids

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNoRange means that every range of ids is in use.
var ErrNoRange = errors.New("all ranges of user ids are in use by sandboxes on this machine")

// The ranges of the host's root: 4,096 of them, from 0x70000000 to 0x7FFFFFFF.
// systemd's list of ids in use (UIDS-GIDS.md) assigns them to nothing: those of
// its containers end below, and subuid files begin far below.
const (
	firstRange = 0x70000000
	rangeCount = 4096
)

// slotsFile is locked at one byte per range. It is not in the state folder,
// because the place of that depends on the environment, and all processes must
// use the same file.
const slotsFile = "/run/berth-local-ids"

// slots assigns ranges. A range is a lock on one byte of a file. The kernel
// releases the lock when the process ends for any reason, and the sandboxes of
// the process end with it.
type slots struct {
	mu    sync.Mutex
	file  *os.File
	taken [rangeCount]bool // by this process: locks of one description do not exclude each other
}

func openSlots() (*slots, error) {
	s, err := slotsIn(slotsFile)
	if err == nil {
		s.taken = takenBySubordinates(subuid, subgid)
	}
	return s, err
}

func slotsIn(file string) (*slots, error) {
	// No other user can replace the file, because /run belongs to root.
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s, which keeps sandboxes from sharing ids: %w", file, err)
	}
	return &slots{file: os.NewFile(uintptr(fd), file)}, nil
}

// takenBySubordinates marks ranges that a subuid or subgid file assigns to a
// user. The usual tools assign none this high, but an administrator may.
func takenBySubordinates(files ...string) (taken [rangeCount]bool) {
	for _, file := range files {
		all, err := spans(file, func(string) bool { return true })
		if err != nil {
			continue // there are none
		}
		for _, s := range all {
			for i := range taken {
				if low := firstRange + i*Count; s.first < low+Count && low < s.first+s.count {
					taken[i] = true
				}
			}
		}
	}
	return taken
}

// take returns the first host id of a range that no process on this machine
// uses.
func (s *slots) take() (base int, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := rand.IntN(rangeCount) // so that processes seldom try the same one
	for k := range rangeCount {
		i := (start + k) % rangeCount
		if s.taken[i] {
			continue
		}
		err := s.lock(i, unix.F_WRLCK)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			continue
		}
		if err != nil {
			return 0, nil, fmt.Errorf("lock a range of ids in %s: %w", s.file.Name(), err)
		}
		s.taken[i] = true
		return firstRange + i*Count, sync.OnceFunc(func() { s.release(i) }), nil
	}
	return 0, nil, ErrNoRange
}

func (s *slots) release(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock(i, unix.F_UNLCK) == nil { // else it stays taken until we end
		s.taken[i] = false
	}
}

// lock changes the lock of one byte. The lock belongs to the open file
// description, because a lock of the process would end when any descriptor of
// the file is closed.
func (s *slots) lock(i int, kind int16) error {
	return unix.FcntlFlock(s.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: int64(i), Len: 1})
}

// Files of subordinate ids: user or number, first id, count.
const (
	subuid = "/etc/subuid"
	subgid = "/etc/subgid"
)

// span is a range of consecutive ids.
type span struct{ first, count int }

// spans returns all lines of a file of subordinate ids that which accepts. It
// skips a line that cannot be read, as newuidmap does.
func spans(file string, which func(name string) bool) (all []span, err error) {
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		p := strings.Split(strings.TrimSpace(line), ":")
		if len(p) != 3 || !which(p[0]) {
			continue
		}
		first, err1 := strconv.Atoi(p[1])
		count, err2 := strconv.Atoi(p[2])
		if err1 == nil && err2 == nil && first > 0 && count > 0 {
			all = append(all, span{first, count})
		}
	}
	return all, err
}

// mine returns a line with enough ids for a sandbox that names the user uid, by
// name or number.
func mine(file string, uid int) (span, error) {
	number := strconv.Itoa(uid)
	name := number
	if u, err := user.LookupId(number); err == nil {
		name = u.Username
	} else if login := os.Getenv("USER"); login != "" {
		name = login // from a directory service; a false name gains nothing, because newuidmap asks the service itself
	}
	all, err := spans(file, func(s string) bool { return s == name || s == number })
	if err != nil && !os.IsNotExist(err) {
		return span{}, err
	}
	for _, s := range all {
		if s.count >= Count-1 {
			return s, nil
		}
	}
	return span{}, fmt.Errorf("%s gives user %s no %d ids in one line", file, name, Count-1)
}
