package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Plain implements Check for an environment that runs programs as root and has
// no other users, sandbox network, sidecars or limits. Embed it and set Name,
// which appears in its messages.
type Plain struct {
	Name string
	// Images says that the environment runs images: Check accepts every image.
	// Otherwise the environment shows the host's programs, and Check accepts
	// what Facts accepts.
	Images bool
	// Copies says that Create calls Files, so Check and Facts accept COPY. Hidden
	// are the folders of the sandbox in which placed files would not be seen:
	// those of the host, and those that the environment makes itself.
	Copies bool
	Hidden []string
}

// Check refuses what such an environment does not have.
func (e Plain) Check(_ context.Context, s Spec) (r Report, err error) {
	refuse := func(yes bool, what, todo string) {
		if yes {
			r.Refusals = append(r.Refusals, Problem{Summary: what, Detail: e.Name + " " + todo})
		}
	}
	none := s.Network.Mode == NetworkNone || s.Network.Mode == NetworkAllow // reached through the core's proxy
	refuse(!none, fmt.Sprintf("Network %q", s.Network.Mode), "has none: use another environment")
	if !e.Images {
		_, unfit := e.Facts(s.Image)
		refuse(unfit != nil, fmt.Sprint("The task's image: ", unfit), "shows the host's programs: use an environment with images")
		if unfit == nil && s.Image.Build != "" {
			r.Degraded = append(r.Degraded, Problem{Summary: "The programs of this machine are used instead of the task's image", Detail: "To run the image, use an environment with images."})
		}
	}
	refuse(len(s.Sidecars)+len(s.Volumes) > 0, "Several containers, or volumes", "makes one container: use an environment with sidecars")
	refuse(len(s.Users) > 0, "A second user", "has only root: use another environment")
	refuse(s.Limits.GPUs > 0, "A GPU", "has none: use another environment")
	if l := s.Limits; l.CPUMilli+l.MemoryMiB+l.StorageMiB+l.ShmMiB+l.Pids > 0 {
		r.Degraded = append(r.Degraded, Problem{Summary: "Limits", Detail: e.Name + " keeps none"})
	}
	return r, nil
}

// mostDockerfile is the largest Dockerfile that Facts reads, in bytes.
const mostDockerfile = 1 << 20

// Facts reads the Dockerfile of a task for an environment that shows the host's
// programs, for Create to return. It accepts FROM, absolute WORKDIR and
// ENV NAME=VALUE, each on one line, without quotes and variables. With Copies, it
// also accepts COPY of files and folders, without patterns, with --chown of root
// and --chmod in octal digits, if they can be placed; Files places them. Every
// other instruction needs an environment with images, and is an error that names
// the line. So is an image that is not built.
func (e Plain) Facts(i Image) (ImageFacts, error) {
	if i.Ref != "" || i.Build == "" {
		f := ImageFacts{Base: "host", Digest: i.Digest}
		if i.Ref != "" {
			return f, fmt.Errorf("%q", i.Ref)
		}
		return f, nil
	}
	f, err := e.read(i)
	if err == nil {
		_, err = e.plan(i, f)
	}
	return f.facts, err
}

// plainFile is what Plain knows of a Dockerfile.
type plainFile struct {
	facts  ImageFacts
	copies []copied
}

// read reads the Dockerfile of a build.
func (e Plain) read(i Image) (f plainFile, err error) {
	f.facts = ImageFacts{Base: "host", Digest: i.Digest}
	text, err := dockerfile(i)
	if err != nil {
		return f, fmt.Errorf("the Dockerfile: %w", err)
	}
	stages := 0
	for n, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		at := fmt.Sprintf("line %d of the Dockerfile, %.80q", n+1, strings.TrimSpace(line))
		ok := !strings.ContainsAny(line, "$\\\"'`")
		switch strings.ToUpper(words[0]) {
		case "FROM":
			stages++
			ok = ok && len(words) == 2 && stages == 1
		case "WORKDIR":
			ok = ok && stages == 1 && len(words) == 2 && path.IsAbs(words[1])
			f.facts.Workdir = path.Clean(words[len(words)-1])
		case "ENV":
			ok = ok && stages == 1 && f.facts.set(words[1:])
		case "COPY":
			c, simple := readCopy(words[1:], f.facts.Workdir)
			c.text = at
			f.copies = append(f.copies, c)
			ok = ok && e.Copies && stages == 1 && simple
		default:
			ok = false
		}
		if !ok {
			return f, errors.New(at)
		}
	}
	if stages == 0 {
		return f, errors.New("a Dockerfile without FROM")
	}
	return f, nil
}

// set sets variables, each NAME=VALUE.
func (f *ImageFacts) set(variables []string) bool {
	for _, v := range variables {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return false
		}
		if f.Env == nil {
			f.Env = map[string]string{}
		}
		f.Env[name] = value
	}
	return len(variables) > 0
}

// dockerfile reads the Dockerfile of a build, which need not be a plain file.
func dockerfile(i Image) (string, error) {
	root, err := os.OpenRoot(i.Build)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(cmp.Or(i.File, "Dockerfile")), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, wrong := f.Stat(); wrong != nil || !info.Mode().IsRegular() {
		return "", errors.Join(wrong, errors.New("not a file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, mostDockerfile+1))
	if err == nil && len(data) > mostDockerfile {
		err = fmt.Errorf("more than %d bytes", mostDockerfile)
	}
	return string(data), err
}

// Err returns the first refusal as an error for Create to return, which wraps
// ErrRefused; nil when there is none.
func (r Report) Err() error {
	if len(r.Refusals) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", r.Refusals[0], ErrRefused)
}
