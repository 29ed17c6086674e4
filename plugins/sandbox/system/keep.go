package system

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

// unkept are folders of which nothing is kept: they are not of the sandbox's own
// file system.
var unkept = []string{"/berth", "/proc", "/sys", "/dev"}

// keep writes paths as they are, with the folders that they are in, and which of
// them do not exist. Devices and sockets are left out.
func (t tree) keep(changed [][]byte, out io.Writer) error {
	x := &packer{t: t, tar: tar.NewWriter(out), done: map[string]bool{}, links: archive.Links{}}
	written := map[string]bool{"/": true}
	for _, one := range changed {
		name := path.Clean("/" + string(one))
		if slices.ContainsFunc(unkept, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }) {
			continue
		}
		if err := x.kept(name, written); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return x.tar.Close()
}

func (x *packer) kept(name string, written map[string]bool) error {
	if written[name] || x.over(name) {
		return nil
	}
	info, err := os.Lstat(x.t.at(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return x.remove(name)
	}
	if err != nil {
		return err
	}
	if err = x.kept(path.Dir(name), written); err != nil {
		return err
	}
	written[name] = true
	return x.entry(name, !info.IsDir())
}
