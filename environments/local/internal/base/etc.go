package base

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// withheld are names under /etc that no sandbox sees: files about this machine,
// its users' keys, or its network. In addition, Etc always leaves out files
// that not every user may read, files with private names, and files that
// contain an address with a password.
var withheld = []string{
	"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "passwd-", "group-", ".pwd.lock",
	"subuid", "subuid-", "subgid", "subgid-", "machine-id", "hostname", "hosts", "resolv.conf", "fstab", "mtab", "crypttab", "environment",
	"ssh", "ssl/private", "krb5.keytab", "krb5.conf", "krb5.conf.d", "ipsec.secrets", "ipsec.d", "letsencrypt", "wireguard", "openvpn", "ppp",
	"NetworkManager", "wpa_supplicant", "netplan", "network", "docker", "containers", "kubernetes", "rancher", "cni", "munge", "slurm", "sssd",
	"systemd", "udev", "cron.d", "cron.daily", "cron.hourly", "cron.weekly", "cron.monthly", "cron", "apt/auth.conf", "apt/auth.conf.d",
	"cloud", "amazon", "google", "azure", "puppet", "salt", "ansible", "exports", "auto.master", "postgresql", "mysql", "grafana",
}

// written are our own files in their place.
var written = map[string]string{
	"hosts":       "127.0.0.1 localhost berth\n::1 localhost berth\n",
	"hostname":    "berth\n",
	"resolv.conf": "",
	"fstab":       "",
	"machine-id":  "",
	"shadow":      "%s:*:19000:0:99999:7:::\n", // for each user of passwd: su refuses one without
}

// shadow returns lines without passwords for root and the users of a passwd file.
func shadow(passwd string) string {
	var text strings.Builder
	fmt.Fprintf(&text, written["shadow"], "root")
	for line := range strings.Lines(passwd) {
		if f := strings.Split(line, ":"); len(f) == 7 && f[0] != "root" && f[1] == "x" {
			fmt.Fprintf(&text, written["shadow"], f[0])
		}
	}
	return text.String()
}

// Etc returns a filtered copy of etc, which is /etc except in tests. It is a
// copy, while /usr is an overlay, because /etc is small (500 files). The copied
// files belong to us, so programs inside can change them in place (useradd,
// update-alternatives). Secret files are not in the copy at all, instead of
// being covered.
func (s *State) Etc(etc string) (*Copy, error) {
	walk := func(do visit) error { return walkEtc(etc, do) }
	return s.get(recipe{
		kind:        "etc",
		fingerprint: func() (string, error) { return fingerprint(walk, withheld, written) },
		build: func(tree string, list *bufio.Writer) error {
			return errors.Join(copyAll(walk, tree, list, nil), writeOwn(tree, list))
		},
	})
}

// visible reports whether a sandbox may see a path below /etc.
func visible(rel string, info fs.FileInfo) bool {
	if slices.Contains(withheld, rel) {
		return false
	}
	for _, end := range []string{".key", ".keytab", ".p12", ".pfx"} {
		if strings.HasSuffix(rel, end) {
			return false
		}
	}
	switch {
	case strings.ContainsAny(rel, "\n\x00"), slices.Contains(private, filepath.Base(rel)):
		return false
	case info.IsDir():
		return ForAll(info.Mode())
	case info.Mode().IsRegular():
		// Check the permission of other users, not ours: a group of ours may be
		// allowed to read secret files.
		return info.Mode().Perm()&0o004 != 0
	default:
		return info.Mode()&fs.ModeSymlink != 0
	}
}

// ForAll reports whether every user may read and enter a folder. A sandbox shows
// no other folders.
func ForAll(mode fs.FileMode) bool { return mode.Perm()&0o005 == 0o005 }

// unreadable reports whether a part of the host is left out because of err: no
// user may read it, it was removed, or its server does not answer.
func unreadable(err error) bool {
	for _, known := range []error{fs.ErrPermission, fs.ErrNotExist, unix.ENOTDIR, unix.ELOOP, unix.ENOTCONN, unix.ESTALE, unix.EHOSTDOWN} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// password matches an address with a user and a password in it, as in the
// settings of package managers and proxies.
var password = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"'<>]+:[^\s/@"'<>]+@[A-Za-z0-9\[]`)

// maxLooked is how many bytes of a file are searched for passwords.
const maxLooked = 1 << 20

// hasPassword reports whether a file contains an address with a password. It
// returns false for a file that cannot be read; another step reports that.
func hasPassword(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(io.LimitReader(f, maxLooked))
	return bytes.Contains(text, []byte("://")) && password.Match(text)
}

// walkEtc visits every visible path of etc, folders first.
func walkEtc(etc string, do visit) error {
	return filepath.WalkDir(etc, func(path string, d fs.DirEntry, err error) error {
		if d == nil {
			return err
		}
		skip := error(nil)
		if d.IsDir() {
			skip = fs.SkipDir
		}
		if unreadable(err) {
			return skip
		}
		if err != nil || path == etc {
			return err
		}
		rel, err := filepath.Rel(etc, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || !visible(rel, info) {
			return skip //nolint:nilerr // it was removed in the meantime
		}
		if info.Mode().IsRegular() && hasPassword(path) {
			return nil
		}
		return do(path, rel, info)
	})
}

// writeOwn writes our own files into a copy of /etc.
func writeOwn(tree string, list *bufio.Writer) error {
	for name, text := range written {
		mode := os.FileMode(0o644)
		if name == "shadow" {
			users, _ := os.ReadFile(filepath.Join(tree, "passwd")) //nolint:errcheck // without one there is root
			mode, text = 0o640, shadow(string(users))
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), mode); err != nil {
			return err
		}
		if _, err := list.WriteString(name + "\n"); err != nil {
			return err
		}
	}
	return os.Symlink("/proc/self/mounts", filepath.Join(tree, "mtab"))
}
