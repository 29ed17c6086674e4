package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/core/store"
)

// lease is the content of a lease: who has it. Nonce makes it differ from that of
// any other process, also of one with the same name.
type lease struct {
	Holder string `json:"holder"`
	Nonce  string `json:"nonce"`
}

// claimer takes leases for one process.
type claimer struct {
	root string // the folder of this package
	file string // of this process, without its number
	me   lease
	made int // claims
}

// perFile is how many leases are links to one file: file systems allow some
// 65,000 links.
const perFile = 10_000

// newClaimer makes a claimer; file is the path of a new file, without its ending.
func newClaimer(root, file, holder string) *claimer {
	return &claimer{root: root, file: file, me: lease{Holder: holder, Nonce: rand.Text()}}
}

// own returns the file that leases are links to.
func (c *claimer) own() (string, error) {
	name := fmt.Sprintf("%s.claim-%d", c.file, c.made/perFile)
	if c.made%perFile == 0 {
		if err := put(filepath.Dir(name), filepath.Base(name), &c.me); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return name, nil
}

// errUndecided means that it is not known yet who has a lease: the caller asks
// again later.
var errUndecided = errors.New("the lease cannot be read yet")

// claim takes the lease of an attempt, and reports whether this process has it.
// What is there decides, and not the answer to the link: the answer may be lost,
// and the file server then reports our own link as taken.
func (c *claimer) claim(name string) (bool, error) {
	file, err := c.own()
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", name, err)
	}
	linked := link(file, filepath.Join(c.root, leasesDir, name))
	c.made++
	holder, err := holderOf(c.root, name)
	switch {
	case err == nil:
		return holder == c.me, nil
	case linked == nil || errors.Is(linked, fs.ErrExist):
		return false, errUndecided
	default:
		return false, fmt.Errorf("claim %s: %w", name, linked)
	}
}

// link is os.Link, except in tests.
var link = os.Link

// holderOf reads who has a lease.
func holderOf(root, name string) (l lease, err error) {
	b, err := own(root, leasesDir+"/"+name, maxJob)
	if err == nil && (!store.Unseal(b, &l) || !safe.MatchString(l.Holder)) {
		err = fmt.Errorf("lease of %s: it is damaged", name)
	}
	return l, err
}
