// Package passwd finds the user that a command runs as in the sandbox's own
// /etc/passwd and /etc/group.
//
// It is the one place where PID 1 parses text that the sandbox can write: whole
// lines of at most a megabyte, split at colons. It is done here so that clients
// in any language can name a user. The package must not open paths that the
// text names, and skips malformed lines.
package passwd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/internal/beneath"
)

// User is the user that a command runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32 // includes GID
	Home     string   // "/" if no line says it
}

// maxFile is how many bytes of a file are read. maxGroups is the largest number
// of groups of a user; NGROUPS_MAX is larger, but no usual image comes near it.
const (
	maxFile   = 1 << 20
	maxGroups = 1024
)

// Resolve reads spec like an image's USER: "" is 0, "name", "1000",
// "name:group", "1000:1000". An unknown name is ErrNotFound. An unknown number
// has group 0 and home "/". The groups of /etc/group that list the user's name
// count only if no group is given.
func Resolve(spec string) (User, error) {
	return resolve(spec, file("/etc/passwd"), file("/etc/group"))
}

func resolve(spec string, passwd, group []byte) (User, error) {
	name, groupName, withGroup := strings.Cut(spec, ":")
	if spec == "" {
		name = "0"
	}
	u := User{Home: "/"}
	var login string
	id, numeric := number(name)
	found := lines(passwd, 7, func(f [][]byte) bool {
		uid, okU := number(string(f[2]))
		gid, okG := number(string(f[3]))
		if !okU || !okG || string(f[0]) != name && (!numeric || uid != id) {
			return false
		}
		u.UID, u.GID, login = uid, gid, string(f[0])
		if len(f[5]) > 0 && f[5][0] == '/' {
			u.Home = string(f[5])
		}
		return true
	})
	switch {
	case !found && numeric:
		u.UID = id
	case !found:
		return u, fmt.Errorf("%w: no user %q in the sandbox's /etc/passwd", fault.ErrNotFound, name)
	}
	if withGroup {
		gid, err := groupID(groupName, group)
		if err != nil {
			return u, err
		}
		u.GID, u.Groups = gid, []uint32{gid}
		return u, nil
	}
	u.Groups = []uint32{u.GID}
	if login != "" {
		lines(group, 4, func(f [][]byte) bool {
			gid, ok := number(string(f[2]))
			if ok && !slices.Contains(u.Groups, gid) && slices.ContainsFunc(bytes.Split(f[3], []byte(",")), func(m []byte) bool {
				return string(m) == login
			}) {
				u.Groups = append(u.Groups, gid)
			}
			return len(u.Groups) >= maxGroups
		})
	}
	return u, nil
}

func groupID(name string, group []byte) (gid uint32, err error) {
	id, numeric := number(name)
	if numeric {
		return id, nil
	}
	found := lines(group, 4, func(f [][]byte) (ok bool) {
		if string(f[0]) != name {
			return false
		}
		gid, ok = number(string(f[2]))
		return ok
	})
	if !found {
		return 0, fmt.Errorf("%w: no group %q in the sandbox's /etc/group", fault.ErrNotFound, name)
	}
	return gid, nil
}

// number reads an id. The largest is -1, which means "unchanged" to the kernel.
func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n < 1<<32-1
}

// lines calls use with each line that has the given number of fields, until use
// returns true.
func lines(b []byte, fields int, use func([][]byte) bool) bool {
	for line := range bytes.Lines(b) {
		f := bytes.SplitN(bytes.TrimRight(line, "\n"), []byte(":"), fields+1)
		if len(f) == fields && len(f[0]) > 0 && use(f) {
			return true
		}
	}
	return false
}

// file reads a file of the sandbox. It returns nothing if the file does not exist or
// is not a regular file.
func file(path string) []byte {
	fd, _, err := beneath.Regular(path)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil
	}
	return data
}
