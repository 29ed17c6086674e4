package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/image"
	"github.com/berth-eval/berth/environments/local/internal/uplink"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// judgement is the result of checking a Spec.
type judgement struct {
	report   environment.Report
	image    *image.Image
	granted  environment.Granted
	findings []string
	workdir  string
	pids     int64
	storage  int64
}

func (j *judgement) refuse(summary, detail string) {
	j.report.Refusals = append(j.report.Refusals, environment.Problem{Summary: summary, Detail: detail})
}

func (j *judgement) degrade(summary, detail string) {
	j.report.Degraded = append(j.report.Degraded, environment.Problem{Summary: summary, Detail: detail})
}

// containers is who can do what needs an image.
const containers = `choose an environment that runs images (environment "podman" or "docker")`

// judge checks spec. An error means that the check itself failed.
func (e *Environment) judge(spec environment.Spec) (*judgement, error) {
	var c Config
	if err := config.Decode(spec.Config, &c); err != nil {
		return nil, fmt.Errorf("configuration of environment \"local\": %w", err)
	}
	j := &judgement{}
	if err := j.judgeImage(spec); err != nil {
		return nil, err
	}
	j.judgeLimits(spec.Limits, c, e.maker.Keeps)
	j.judgeNetwork(spec.Network, e.maker.Uplink)
	j.judgePlaces(spec)
	return j, j.judgeUsers(spec, e.process.Mode.Many(), e.process.Why)
}

// judgeImage reads what the task wants to start from.
func (j *judgement) judgeImage(spec environment.Spec) (err error) {
	j.image = &image.Image{Facts: environment.ImageFacts{Base: image.Base}}
	for _, s := range spec.Sidecars {
		j.refuse(fmt.Sprintf("The task needs a second container, %q", s.Name), "Environment \"local\" makes one sandbox and no sidecars: "+containers+".")
	}
	for _, v := range spec.Volumes {
		j.refuse(fmt.Sprintf("The task needs the volume %q", v.Name), "Environment \"local\" has no volumes: "+containers+".")
	}
	if spec.Image.Ref != "" {
		j.refuse(fmt.Sprintf("The task needs the image %q", spec.Image.Ref), "Environment \"local\" has the host's own programs and no images: "+containers+".")
		return nil
	}
	im, err := image.Read(spec.Image)
	if errors.Is(err, environment.ErrBuildFailed) || errors.Is(err, environment.ErrBadImage) {
		j.refuse("The task's Dockerfile cannot be read", err.Error()+": correct it, or "+containers+".")
		return nil
	}
	if err != nil {
		return err
	}
	j.image = im
	j.report.Refusals = append(j.report.Refusals, im.Refusals...)
	if im.From != "" && im.From != "scratch" {
		j.degrade("The programs of this machine are used instead of the task's image", "To run the image, use environment \"podman\" or \"docker\".")
	}
	return nil
}

// judgeLimits decides how each limit is enforced.
func (j *judgement) judgeLimits(l environment.Limits, c Config, keeps func(cgroup.Controller) bool) {
	var how []string
	j.pids, j.storage = l.Pids, l.StorageMiB
	if j.pids == 0 {
		j.pids = c.Pids
	}
	how = append(how, fmt.Sprintf("RLIMIT_NPROC of %d a user", j.pids))
	if l.Pids > 0 {
		j.granted.Pids = environment.GrantBestEffort // root of the sandbox has more than one user to count
		if keeps(cgroup.Pids) {
			j.granted.Pids = environment.GrantEnforced
			how = append(how, "a control group")
		}
	}
	if j.storage == 0 {
		j.storage = c.StorageMiB
	}
	if j.storage > 0 {
		how = append(how, fmt.Sprintf("a tmpfs of %d MiB", j.storage))
	}
	if l.StorageMiB > 0 {
		j.granted.Disk = environment.GrantEnforced
	}
	const none = "Environment \"local\" has no control group for it on this machine. Start berth with systemd-run --user --scope, or " +
		"choose an environment that runs containers. Otherwise attempts run without this limit, but with their deadlines."
	if l.MemoryMiB > 0 {
		if j.granted.Memory = environment.GrantEnforced; !keeps(cgroup.Memory) {
			j.granted.Memory = environment.GrantNo
			j.degrade("The memory limit is not enforced", none)
		}
	}
	if l.CPUMilli > 0 {
		if j.granted.CPU = environment.GrantEnforced; !keeps(cgroup.CPU) {
			j.granted.CPU = environment.GrantNo
			j.degrade("The limit on processors is not enforced", none)
		}
	}
	if l.GPUs > 0 {
		j.granted.GPU = environment.GrantNo
		needs := fmt.Sprintf("The task needs %d GPU", l.GPUs)
		if l.GPUs > 1 {
			needs += "s"
		}
		j.refuse(needs, "Environment \"local\" offers none: choose another environment.")
	}
	for _, n := range []struct {
		name  string
		value int64
	}{{"pids", l.Pids}, {"storage_mib", l.StorageMiB}, {"shm_mib", l.ShmMiB}, {"memory_mib", l.MemoryMiB}, {"cpu_milli", l.CPUMilli}} {
		if n.value < 0 {
			j.refuse("A limit is negative", fmt.Sprintf("%s is %d: write 0 for none, or a positive number.", n.name, n.value))
		}
	}
	j.granted.How = strings.Join(how, ", ")
}

// judgeNetwork checks whether the requested network is available; uplinked
// returns the program that connects to the public network, or "".
func (j *judgement) judgeNetwork(n environment.Network, uplinked func() string) {
	switch n.Mode {
	case environment.NetworkNone, environment.NetworkAllow:
		j.granted.Network = environment.GrantEnforced
	case environment.NetworkPublic:
		if program := uplinked(); program != "" {
			j.granted.Network = environment.GrantEnforced
			j.granted.How += ", public network through " + program
			return
		}
		j.granted.Network = environment.GrantNo
		j.refuse("The task needs the public network", "Environment \"local\" needs a program for that, and finds none: install "+uplink.Packages+
			"; or grant less (network = \"none\" in the environment block; the result is then marked modified); or "+containers+".")
	default:
		j.refuse("The network mode is not known", fmt.Sprintf("Got %q: it is \"none\", \"allow\" or \"public\".", n.Mode))
	}
}

// reserved are the folders of a sandbox that are not a task's.
var reserved = []string{"proc", "dev", "sys", "berth"}

func isReserved(p string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(p), "/"), "/")
	return top == "" || slices.Contains(reserved, top)
}

// judgePlaces checks the paths inside.
func (j *judgement) judgePlaces(spec environment.Spec) {
	j.workdir = spec.Workdir
	if j.workdir == "" {
		j.workdir = j.image.Facts.Workdir
	}
	switch clean := path.Clean(j.workdir); {
	case j.workdir == "":
	case !path.IsAbs(j.workdir):
		j.refuse("The working folder is not absolute", fmt.Sprintf("Got %q.", j.workdir))
	case clean != "/" && isReserved(clean):
		j.refuse("The working folder is reserved", fmt.Sprintf("The sandbox itself creates %q.", j.workdir))
	default:
		j.workdir = clean
	}
	for _, m := range spec.Mounts {
		switch {
		case !path.IsAbs(m.Source) || !path.IsAbs(m.Target):
			j.refuse("A mount is not absolute", fmt.Sprintf("Got %q on %q.", m.Source, m.Target))
		case isReserved(m.Target):
			j.refuse("A mount is where the sandbox's own folders are", fmt.Sprintf("Nothing can be mounted on %q.", m.Target))
		}
	}
}

// judgeUsers checks that users other than root are possible.
func (j *judgement) judgeUsers(spec environment.Spec, many bool, why string) error {
	all := slices.Clone(spec.Users)
	all = append(all, j.image.Facts.User)
	all = append(all, j.image.Owners()...)
	seen := map[string]bool{}
	for _, u := range all {
		name, _, _ := strings.Cut(u, ":")
		if name == "" || name == "root" || name == "0" || seen[name] {
			continue
		}
		seen[name] = true
		if !many {
			j.refuse(fmt.Sprintf("The task needs a second user, %q", name), "The sandboxes of this user have one user id, root"+because(why)+
				": an administrator can give the user a range of ids (usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER) "+
				"and install newuidmap; or run as root; or "+containers+".")
			continue
		}
		if n, err := strconv.Atoi(name); err == nil {
			if n < 0 || n >= become.OwnID {
				j.refuse(fmt.Sprintf("User %d does not exist in a sandbox", n), fmt.Sprintf("Ids go from 0 to %d here.", become.OwnID-1))
			}
			continue
		}
		ok, err := hasUser("/etc/passwd", name)
		if err != nil {
			return err
		}
		if !ok {
			j.refuse(fmt.Sprintf("There is no user %q", name), "Users come from the host's /etc/passwd, and no image is built that could add one: "+
				"create the user on this machine, name a number, or "+containers+".")
		}
	}
	return nil
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// hasUser says whether file, which is like /etc/passwd, has name. A group is
// looked up the same way by COPY --chown, and most users have one of their name.
func hasUser(file, name string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if user, _, _ := strings.Cut(s.Text(), ":"); user == name {
			return true, nil
		}
	}
	return false, s.Err()
}
