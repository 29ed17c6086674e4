package engine

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
)

// judgement is the result of checking a Spec for an engine.
type judgement struct {
	report    environment.Report
	config    Config
	remote    *remote
	facts     Facts
	container Container   // without name, image, labels
	sidecars  []Container // as container, in the order of the spec
	granted   environment.Granted
}

func (j *judgement) refuse(summary, detail string) {
	j.report.Refusals = append(j.report.Refusals, environment.Problem{Summary: summary, Detail: detail})
}

func (j *judgement) degrade(summary, detail string) {
	j.report.Degraded = append(j.report.Degraded, environment.Problem{Summary: summary, Detail: detail})
}

// Check reports why Create would refuse spec.
func (e *Environment) Check(ctx context.Context, spec environment.Spec) (environment.Report, error) {
	j, err := e.judge(ctx, spec)
	if err != nil {
		return environment.Report{}, err
	}
	j.report.Machine = e.checks()
	return j.report, nil
}

// judge checks spec. An error means that the check itself failed.
func (e *Environment) judge(ctx context.Context, spec environment.Spec) (*judgement, error) {
	j := &judgement{}
	if err := config.Decode(spec.Config, &j.config); err != nil {
		return nil, fmt.Errorf("configuration of environment %q: %w", e.o.Name, err)
	}
	for _, p := range j.config.Validate() {
		j.refuse(fmt.Sprintf("%s: %s", p.Path, p.Summary), p.Detail)
	}
	if len(j.report.Refusals) > 0 {
		return j, nil
	}
	err := usable()
	if err != nil {
		j.refuse(fmt.Sprintf("Environment %q has no folder for its locks", e.o.Name), err.Error())
		return j, nil
	}
	if j.remote, err = e.at(j.config); err != nil {
		j.refuse(fmt.Sprintf("Environment %q found no engine", e.o.Name), err.Error())
		return j, nil
	}
	if j.facts, err = j.remote.Facts(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		j.refuse(fmt.Sprintf("The engine of environment %q does not answer", e.o.Name), e.o.Help(j.remote.address, err))
		return j, nil
	}
	j.report.Degraded = append(j.report.Degraded, j.facts.Degraded...)
	j.report.About = j.facts.About + " at " + j.remote.address
	j.container.NoSELinux = j.facts.SELinux
	j.judgeImage(spec)
	j.judgeLimits(spec.Limits)
	j.judgeNetwork(spec.Network)
	j.judgePlaces(spec)
	j.judgeUsers(spec)
	j.judgeSidecars(spec)
	return j, nil
}

func (j *judgement) judgeImage(spec environment.Spec) {
	switch im := spec.Image; {
	case im.Ref != "" && im.Build != "":
		j.refuse("The task names an image and a folder to build", fmt.Sprintf("Got %q and %q: keep one of them.", im.Ref, im.Build))
	case im.Build != "":
		_, added := im.Files[fileOf(im)]
		if info, err := os.Stat(path.Join(im.Build, fileOf(im))); !added && (err != nil || !info.Mode().IsRegular()) {
			j.refuse("The task's Dockerfile is not there", fmt.Sprintf("There is no file %q in %q.", fileOf(im), im.Build))
		} else if why := j.remote.CannotBuild(wantsOf(im)); why != "" {
			j.refuse("The engine cannot build the task's Dockerfile", why)
		}
	default:
		if _, file, ok := archive(j.from(im)); ok {
			j.judgeArchive(file)
		}
	}
}

// judgeArchive refuses an archive that this machine cannot read.
func (j *judgement) judgeArchive(file string) {
	const all = "Every machine that makes attempts needs it at that path."
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		j.refuse("The archive of the image is not there", fmt.Sprintf("There is no file %q on this machine. %s", file, all))
		return
	}
	f, err := os.Open(file)
	if err != nil {
		j.refuse("The archive of the image cannot be read", fmt.Sprintf("On this machine: %v. %s", err, all))
		return
	}
	_ = f.Close()
}

// notKept ends the message about a limit that is not enforced.
const notKept = "Attempts run without this limit, but with their deadlines. `berth doctor` tells more about the engine."

// RoughPids is the summary of what Check says where the engine has no control
// group to limit processes with.
const RoughPids = "The limit on processes is only approximate"

// judgeLimits decides how each limit is enforced.
func (j *judgement) judgeLimits(l environment.Limits) {
	f, c := j.facts, &j.container
	how := []string{f.How}
	if !f.Memory {
		how = append(how, "so OOM kills, peak memory and CPU time are unknown")
	}
	keep := func(what string, asked int64, kept bool, into *environment.Grant) int64 {
		switch {
		case asked < 0:
			j.refuse("A limit is negative", fmt.Sprintf("%s is %d: write 0 for none, or a positive number.", what, asked))
		case asked == 0:
		case kept:
			*into = environment.GrantEnforced
			return asked
		default:
			*into = environment.GrantNo
			j.degrade(fmt.Sprintf("The limit on %s is not enforced", what), "The engine cannot enforce it on this machine. "+notKept)
		}
		return 0
	}
	c.Limits.CPUMilli = keep("processors", l.CPUMilli, f.CPU, &j.granted.CPU)
	c.Limits.MemoryMiB = keep("memory", l.MemoryMiB, f.Memory, &j.granted.Memory)
	c.Limits.StorageMiB = keep("storage", l.StorageMiB, f.Disk, &j.granted.Disk)
	c.Limits.ShmMiB = keep("shared memory", l.ShmMiB, true, new(environment.Grant))
	c.Limits.Pids = max(l.Pids, 0)
	if l.Pids == 0 {
		c.Limits.Pids = j.config.Pids
	}
	if f.Pids {
		keep("processes", l.Pids, true, &j.granted.Pids)
	} else {
		// RLIMIT_NPROC counts all processes of this user id in all its
		// sandboxes: a smaller number would make other sandboxes fail.
		c.Nproc, c.Limits.Pids = max(c.Limits.Pids, 4096), 0
		how = append(how, fmt.Sprintf("RLIMIT_NPROC of %d, which all sandboxes of this user share", c.Nproc))
		if l.Pids > 0 {
			j.granted.Pids = environment.GrantBestEffort
			j.degrade(RoughPids, fmt.Sprintf("The engine has no control group for it here: RLIMIT_NPROC is %d instead, for all sandboxes of this user.", c.Nproc))
		}
	}
	if l.GPUs > 0 {
		j.judgeGPUs(l)
	}
	j.granted.How = strings.Join(slices.DeleteFunc(how, func(s string) bool { return s == "" }), ", ")
}

// gpusHere says which GPUs the engine of the environment name offers, as the
// remedy of a refusal.
func gpusHere(name string, have []string) string {
	if len(have) == 0 {
		return fmt.Sprintf("Environment %q offers none here.", name)
	}
	return fmt.Sprintf("Environment %q offers %d here (%s) and may give any of them: run on a machine where all of them fit.", name, len(have), strings.Join(have, ", "))
}

func (j *judgement) judgeGPUs(l environment.Limits) {
	fits := int64(0)
	for _, have := range j.facts.GPUs {
		if len(l.GPUTypes) == 0 || slices.ContainsFunc(l.GPUTypes, func(t string) bool { return strings.Contains(strings.ToLower(have), strings.ToLower(t)) }) {
			fits++
		}
	}
	if fits < l.GPUs || len(l.GPUTypes) > 0 && fits < int64(len(j.facts.GPUs)) {
		j.granted.GPU = environment.GrantNo
		wanted := fmt.Sprintf("The task needs %d GPU", l.GPUs)
		if l.GPUs > 1 {
			wanted += "s"
		}
		if len(l.GPUTypes) > 0 {
			wanted += " of type " + strings.Join(l.GPUTypes, " or ")
		}
		j.refuse(wanted, gpusHere(j.remote.name, j.facts.GPUs))
		return
	}
	j.granted.GPU = environment.GrantEnforced
	j.container.Limits.GPUs = l.GPUs
}

func (j *judgement) judgeNetwork(n environment.Network) {
	switch n.Mode {
	case environment.NetworkNone, environment.NetworkAllow:
		j.granted.Network = environment.GrantEnforced
	case environment.NetworkPublic:
		if j.facts.NoPublic != "" {
			j.granted.Network = environment.GrantNo
			j.refuse("The task needs the public network", j.facts.NoPublic+
				"; or grant less (network = \"none\" in the environment block; the result is then marked modified).")
			return
		}
		j.granted.Network = environment.GrantEnforced
		j.container.Public = true
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
	switch dir := spec.Workdir; {
	case dir == "":
	case !path.IsAbs(dir):
		j.refuse("The working folder is not absolute", fmt.Sprintf("Got %q.", dir))
	case path.Clean(dir) != "/" && isReserved(dir):
		j.refuse("The working folder is reserved", fmt.Sprintf("The engine itself creates %q.", dir))
	}
	mounts := slices.Clone(spec.Mounts)
	for _, m := range j.config.Mounts {
		mounts = append(mounts, environment.Mount(m))
	}
	for _, m := range mounts {
		if !path.IsAbs(m.Source) || !path.IsAbs(m.Target) {
			j.refuse("A mount is not absolute", fmt.Sprintf("Got %q on %q.", m.Source, m.Target))
			continue
		}
		if _, err := os.Stat(m.Source); err != nil {
			j.refuse("A folder to mount is not there", fmt.Sprintf("%s: %v.", m.Source, err))
		}
		if isReserved(m.Target) {
			j.refuse("A mount is where the sandbox's own folders are", fmt.Sprintf("Nothing can be mounted on %q.", m.Target))
		}
		j.container.Mounts = append(j.container.Mounts, m)
	}
}

// judgeUsers refuses users other than root if there is only one id.
func (j *judgement) judgeUsers(spec environment.Spec) {
	if !j.facts.OneID {
		return
	}
	for _, u := range spec.Users {
		name, _, _ := strings.Cut(u, ":")
		if name != "" && name != "root" && name != "0" {
			j.refuse(fmt.Sprintf("The task needs a second user, %q", name), "The engine's containers have one user id here, root: an administrator can give "+
				"this user a range of ids (usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, then podman system migrate) and install newuidmap.")
		}
	}
}
