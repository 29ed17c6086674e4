package local

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/environments/internal/judge"
	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/image"
	"github.com/berth-eval/berth/environments/local/internal/uplink"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// judgement is the result of checking a Spec.
type judgement struct {
	judge.Judgement

	image    *image.Image
	findings []string
	workdir  string
	pids     int64
	storage  int64
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
	missing := ""
	if spec.Network.Mode == environment.NetworkPublic {
		if program := e.maker.Uplink(); program != "" {
			j.Granted.How += ", public network through " + program
		} else {
			missing = "Environment \"local\" needs a program for that, and finds none: install " + uplink.Packages + "; or " + containers
		}
	}
	j.Network(spec.Network.Mode, missing)
	j.judgePlaces(spec)
	return j, j.judgeUsers(spec, e.process.Mode.Many(), e.process.Why)
}

// judgeImage reads what the task wants to start from.
func (j *judgement) judgeImage(spec environment.Spec) (err error) {
	j.image = &image.Image{Facts: environment.ImageFacts{Base: image.Base}}
	for _, s := range spec.Sidecars {
		j.Refuse(fmt.Sprintf("The task needs a second container, %q", s.Name), "Environment \"local\" makes one sandbox and no sidecars: "+containers+".")
	}
	for _, v := range spec.Volumes {
		j.Refuse(fmt.Sprintf("The task needs the volume %q", v.Name), "Environment \"local\" has no volumes: "+containers+".")
	}
	if spec.Image.Ref != "" {
		j.Refuse(fmt.Sprintf("The task needs the image %q", spec.Image.Ref), "Environment \"local\" has the host's own programs and no images: "+containers+".")
		return nil
	}
	im, err := image.Read(spec.Image)
	if errors.Is(err, environment.ErrBuildFailed) || errors.Is(err, environment.ErrBadImage) {
		j.Refuse("The task's Dockerfile cannot be read", err.Error()+": correct it, or "+containers+".")
		return nil
	}
	if err != nil {
		return err
	}
	j.image = im
	j.Report.Refusals = append(j.Report.Refusals, im.Refusals...)
	if im.From != "" && im.From != "scratch" {
		j.Degrade("The programs of this machine are used instead of the task's image", "To run the image, use environment \"podman\" or \"docker\".")
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
		j.Granted.Pids = environment.GrantBestEffort // root of the sandbox has more than one user to count
		if keeps(cgroup.Pids) {
			j.Granted.Pids = environment.GrantEnforced
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
		j.Granted.Disk = environment.GrantEnforced
	}
	const none = "Environment \"local\" has no control group for it on this machine. Start berth with systemd-run --user --scope, or " +
		"choose an environment that runs containers. Otherwise attempts run without this limit, but with their deadlines."
	if l.MemoryMiB > 0 {
		if j.Granted.Memory = environment.GrantEnforced; !keeps(cgroup.Memory) {
			j.Granted.Memory = environment.GrantNo
			j.Degrade("The memory limit is not enforced", none)
		}
	}
	if l.CPUMilli > 0 {
		if j.Granted.CPU = environment.GrantEnforced; !keeps(cgroup.CPU) {
			j.Granted.CPU = environment.GrantNo
			j.Degrade("The limit on processors is not enforced", none)
		}
	}
	if l.GPUs > 0 {
		j.Granted.GPU = environment.GrantNo
		needs := fmt.Sprintf("The task needs %d GPU", l.GPUs)
		if l.GPUs > 1 {
			needs += "s"
		}
		j.Refuse(needs, "Environment \"local\" offers none: choose another environment.")
	}
	for _, n := range []struct {
		name  string
		value int64
	}{{"pids", l.Pids}, {"storage_mib", l.StorageMiB}, {"shm_mib", l.ShmMiB}, {"memory_mib", l.MemoryMiB}, {"cpu_milli", l.CPUMilli}} {
		if n.value < 0 {
			j.Refuse("A limit is negative", fmt.Sprintf("%s is %d: write 0 for none, or a positive number.", n.name, n.value))
		}
	}
	j.Granted.How = strings.Join(how, ", ")
}

// judgePlaces checks the paths inside.
func (j *judgement) judgePlaces(spec environment.Spec) {
	if j.workdir = cmp.Or(spec.Workdir, j.image.Facts.Workdir); j.workdir != "" {
		j.Workdir(j.workdir)
		j.workdir = path.Clean(j.workdir)
	}
	j.Mounts(spec.Mounts)
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
			j.Refuse(fmt.Sprintf("The task needs a second user, %q", name), "The sandboxes of this user have one user id, root"+because(why)+
				": an administrator can give the user a range of ids (usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER) "+
				"and install newuidmap; or run as root; or "+containers+".")
			continue
		}
		if n, err := strconv.Atoi(name); err == nil {
			if n < 0 || n >= become.OwnID {
				j.Refuse(fmt.Sprintf("User %d does not exist in a sandbox", n), fmt.Sprintf("Ids go from 0 to %d here.", become.OwnID-1))
			}
			continue
		}
		ok, err := hasUser("/etc/passwd", name)
		if err != nil {
			return err
		}
		if !ok {
			j.Refuse(fmt.Sprintf("There is no user %q", name), "Users come from the host's /etc/passwd, and no image is built that could add one: "+
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
	text, err := os.ReadFile(file)
	return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, name+":") }), err
}
