package ids

import (
	"bufio"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

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
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	for s.Scan() {
		p := strings.Split(strings.TrimSpace(s.Text()), ":")
		if len(p) != 3 || !which(p[0]) {
			continue
		}
		first, err1 := strconv.Atoi(p[1])
		count, err2 := strconv.Atoi(p[2])
		if err1 == nil && err2 == nil && first > 0 && count > 0 {
			all = append(all, span{first, count})
		}
	}
	return all, s.Err()
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
