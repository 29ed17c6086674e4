package podman

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"go.podman.io/storage/types"

	"github.com/berth-eval/berth/environments/internal/dockerapi"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// private is what one job of a scheduler has of Podman for itself, so that jobs of one
// user on one machine share nothing that changes:
//
//	SCRATCH/podman/jobs/JOB  containers, and images that the job built or pulled
//	SCRATCH/podman/images    images of archives, for all jobs, which only read them; by
//	                         storage driver
//
// What must have a short path is in a folder in /tmp: the API's socket, what runs (u,
// i), and the folder of the session (x).
type private struct {
	scratch string
	job     string
	// short is the folder with a short path. Podman accepts a runroot of at most 50
	// bytes, also behind a link.
	short string
}

const privateDir = "podman"

// errNone means that this process has no engine.
var errNone = errors.New("this process only removes what jobs left")

// ofJob returns what belongs to the job of this process; nil: it is in none.
func ofJob() (*private, error) {
	job := os.Getenv(runtimedir.JobEnv)
	scratch, _, _ := strings.Cut(os.Getenv(runtimedir.ScratchEnv), ":")
	switch {
	case job == runtimedir.NoJob:
		return nil, errNone
	case job == "" || scratch == "" || os.Getuid() == 0: // root has one store
		return nil, nil
	}
	return newPrivate(scratch, filepath.Base(job))
}

func (p *private) dir() string { return filepath.Join(p.scratch, privateDir, "jobs", p.job) }

// images returns the store of images. Stores of several drivers cannot be in one
// folder, and the user may change the driver.
func (p *private) images() string {
	driver, _, _ := usual()
	return filepath.Join(p.scratch, privateDir, "images", driver)
}

// newPrivate names what a job has. Fails if there is no folder for its short path.
func newPrivate(scratch, job string) (*private, error) {
	p := &private{scratch: scratch, job: job}
	place, err := runtimedir.For(os.Getuid()).Own("/tmp")
	sum := sha256.Sum256([]byte(p.dir()))
	p.short = filepath.Join(place, "j"+hex.EncodeToString(sum[:])[:6])
	return p, err
}

// socket returns the path of the API's socket.
func (p *private) socket() string { return p.short + ".sock" }

// make makes the folders of the job, and the store of images if there is none.
func (p *private) make(ctx context.Context) error {
	for _, dir := range []string{filepath.Join(p.scratch, privateDir), filepath.Dir(p.dir()), p.dir(), filepath.Dir(p.images()), p.images(), p.short, filepath.Join(p.short, "x"), p.temp()} {
		if err := runtimedir.Make(dir); err != nil {
			return err
		}
	}
	if run, err := runtimedir.For(os.Getuid()).Session(); err == nil { // where podman login wrote
		login := filepath.Join("containers", "auth.json")
		own := filepath.Join(p.short, "x", login)
		if err = os.MkdirAll(filepath.Dir(own), 0o700); err == nil {
			err = os.Symlink(filepath.Join(run, login), own)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if driver, _, _ := usual(); holdsImages(p.images(), driver) {
		return nil
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = p.run(ctx, p.shared(), "images", "--quiet")
	return err
}

// lock holds the store of images against other jobs on this machine. It removes the
// database of Podman there: no container is in it, but the folders of the job that made
// it, and Podman refuses to work with other ones.
func (p *private) lock(ctx context.Context) (unlock func(), err error) {
	if unlock, err = p.hold(ctx, "images.flock"); err != nil {
		return nil, err
	}
	if err = os.RemoveAll(filepath.Join(p.images(), "libpod")); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// hold holds a name against other processes of this user that use the scratch folder.
func (p *private) hold(ctx context.Context, name string) (unlock func(), err error) {
	f := flock.New(filepath.Join(p.scratch, privateDir, name))
	if _, err = f.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for other jobs of this machine: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// usual are the user's own settings of storage, which options of a command replace.
func usual() (driver string, options []string, store string) {
	o, err := types.DefaultStoreOptions()
	if err != nil {
		return "overlay", nil, "" // it is told when the server does not start
	}
	if driver = o.GraphDriverName; driver == "" {
		driver = "overlay"
	}
	for _, one := range o.GraphDriverOptions {
		options = append(options, "--storage-opt="+one)
	}
	return driver, options, o.GraphRoot
}

// holdsImages reports whether a folder is a store of images of that driver.
func holdsImages(store, driver string) bool {
	_, err := os.Stat(filepath.Join(store, driver+"-images"))
	return err == nil
}

// reads reports whether stores of a driver can read images of other stores. Podman
// itself chooses vfs for users on some distributions.
func reads(driver string) bool { return driver == "overlay" || driver == "vfs" }

// own are options of Podman for the job's own store. It also reads the store of
// images, and that of the user if it is on a disk of this machine.
func (p *private) own() []string {
	driver, options, store := usual()
	args := append([]string{"--root=" + p.dir(), "--runroot=" + filepath.Join(p.short, "u"), "--storage-driver=" + driver}, options...)
	if !reads(driver) {
		return args
	}
	args = append(args, "--storage-opt="+driver+".imagestore="+p.images())
	if holdsImages(store, driver) && runtimedir.Local(store) == nil {
		args = append(args, "--storage-opt="+driver+".imagestore="+store)
	}
	return args
}

// shared are options of Podman for the store of images.
func (p *private) shared() []string {
	driver, options, _ := usual()
	return append([]string{"--root=" + p.images(), "--runroot=" + filepath.Join(p.short, "i"), "--storage-driver=" + driver}, options...)
}

// temp returns the folder in which podman unpacks archives, which need as much room as
// the image.
func (p *private) temp() string { return filepath.Join(p.dir(), "berth-tmp") }

// environ is what podman needs of our environment, with the job's own session and
// folder for temporary files. The last value of a name counts.
func (p *private) environ() ([]string, error) {
	return append(named(), "XDG_RUNTIME_DIR="+filepath.Join(p.short, "x"), "TMPDIR="+p.temp()), nil
}

// run runs podman and returns what it prints.
func (p *private) run(ctx context.Context, options []string, args ...string) (string, error) {
	env, err := p.environ()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "podman", append(options, args...)...)
	var out, said bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, "/", &out, &said
	cmd.WaitDelay = time.Second // its helper process may keep the output open
	if err = cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("podman %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()[max(0, said.Len()-1000):]))
	}
	return out.String(), nil
}

// load loads an archive into the store of images and names it, unless another job has
// done so.
func (p *private) load(ctx context.Context, file, name string) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err = p.run(ctx, p.shared(), "image", "exists", name); err == nil {
		return nil
	}
	said, err := p.run(ctx, p.shared(), "load", "--quiet", "--input="+file)
	if err != nil {
		return fmt.Errorf("load %s: %w", file, err)
	}
	var names []string
	for line := range strings.Lines(said) {
		names = append(names, dockerapi.Loaded(line)...)
	}
	if len(names) != 1 {
		return fmt.Errorf("%w: %s holds %d images, one is needed", environment.ErrBadImage, file, len(names))
	}
	_, err = p.run(ctx, p.shared(), "tag", names[0], name)
	return err
}

// sweep removes what jobs left in some folders that have ended.
func sweep(ctx context.Context, folders []string) (err error) {
	for _, scratch := range folders {
		jobs, listing := os.ReadDir(filepath.Join(scratch, privateDir, "jobs"))
		if listing != nil && !errors.Is(listing, fs.ErrNotExist) {
			err = errors.Join(err, listing)
		}
		for _, j := range jobs {
			p, failed := newPrivate(scratch, j.Name())
			if failed == nil && !p.lives() {
				failed = p.removeOnce(ctx)
			}
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("what job %s left of Podman: %w", p.job, failed))
			}
		}
	}
	return err
}

// lives reports whether a process holds the job's lock.
func (p *private) lives() bool {
	file := filepath.Join(p.scratch, runtimedir.JobLock(p.job))
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	f := flock.New(file, flock.SetFlag(os.O_RDWR))
	ok, err := f.TryLock()
	_ = f.Close()
	return err == nil && !ok
}

// removeOnce removes all of a job, unless another process has done so meanwhile. Pilots
// that end at the same time all see the jobs of the others.
func (p *private) removeOnce(ctx context.Context) error {
	unlock, err := p.hold(ctx, "jobs.flock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err = os.Stat(p.dir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.remove(ctx)
}

// unmountAndRemove removes folders. Podman mounts a folder of its store on itself.
const unmountAndRemove = `umount -l "$1/overlay" 2>/dev/null; rm -rf -- "$@"`

// remove removes all of a job. Other users own files in it, in the user namespace.
func (p *private) remove(ctx context.Context) error {
	p.end()
	// Without the processes, what Podman remembers of them must go, too.
	if err := errors.Join(os.RemoveAll(filepath.Join(p.short, "x")), p.make(ctx)); err != nil {
		return err
	}
	_, err := p.run(ctx, p.own(), "rm", "--all", "--force", "--time=0")
	if _, left := p.run(ctx, p.own(), "unshare", "sh", "-c", unmountAndRemove, "-", p.dir(), filepath.Join(p.short, "u"), filepath.Join(p.short, "i")); left != nil {
		return errors.Join(err, left) // otherwise what the first one could not remove is gone
	}
	p.end()
	return errors.Join(os.RemoveAll(p.dir()), os.RemoveAll(p.short), os.RemoveAll(p.socket()))
}

// end ends the processes of Podman that belong to the job: a server without its
// parent, and the one that keeps the job's user namespace.
func (p *private) end() {
	mark := []byte("XDG_RUNTIME_DIR=" + filepath.Join(p.short, "x") + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ") //nolint:errcheck // the pattern is good
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append(env, 0), mark) { // it has ended, or is another user's
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
