package slurm

import (
	"strings"
	"testing"
)

// limit changes accounts and their limits. ME is the user.
func (s *site) limit(what string) {
	s.t.Helper()
	s.root("login", "sacctmgr --immediate --quiet "+strings.ReplaceAll(what, "ME", strings.TrimSpace(s.on("login", "id -un"))))
}

// with adds lines to the block of a cluster.
func with(block, lines string) string { return strings.Replace(block, "{", "{\n"+lines, 1) }

// An account and a quality of service that the user may not use, and a limit that no
// pilot of the experiment keeps, are said with the words of Slurm before anything is
// submitted. Without accounting, Slurm takes the same jobs.
func TestAnAccountWithoutRights(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--accounting")
	s.limit("add qos strict maxwall=1 flags=DenyOnLimit")
	s.limit("modify user ME set qos+=strict")
	for name, tt := range map[string]struct{ block, want string }{
		"other":     {`account = "other"`, "Invalid account or account/partition combination specified"},
		"forbidden": {`qos = "forbidden"`, "Invalid qos specification"},
		"strict":    {`qos = "strict"`, "time is above the limit of the quality of service (QOSMaxWallDurationPerJobLimit)"},
	} {
		s.experiment(name, 1, with(executor("requeue"), tt.block))
		out := s.berth(name, "run . --no-live; echo code $?")
		if !strings.Contains(out, tt.want) || !strings.Contains(out, "code 3") || s.results(name) > 0 {
			t.Errorf("%s: %s", tt.block, out)
		}
		if out = s.berth(name, "doctor berth.hcl; echo code $?"); !strings.Contains(out, tt.want) && name != "strict" {
			t.Errorf("%s: doctor says: %s", tt.block, out)
		}
	}
	s.empty()
}

// A limit of the account is reached while a run goes on: pilots that have ended cannot
// be replaced, or wait. Progress and show say so in words, no attempt fails because of
// it, and the run has all its pilots when the limit is gone.
func TestLimitsOfAnAccountAreReached(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--accounting")
	s.work = 4
	const trials, name = 150, "limits"
	s.experiment(name, trials, executor("requeue"))
	run := s.start(name, "run . --no-live")
	s.await("pilots work", func() bool { return s.results(name) > 3 && len(s.pilots("%i")) == 3 })
	said := func(text string) {
		t.Helper()
		s.await("progress says: "+text, func() bool { return strings.Contains(run.said(), text) })
		if out := s.berth(name, "show last"); !strings.Contains(out, text) {
			t.Errorf("show does not say %q: %s", text, out)
		}
		s.goesOn(name)
	}

	s.limit("modify user ME set maxsubmitjobs=2")
	s.on("login", "scancel "+s.pilots("%i")[0])
	said("the account has submitted as many jobs as it may (AssocMaxSubmitJobLimit)")
	s.limit("modify user ME set maxsubmitjobs=-1")
	s.await("three pilots work again", func() bool { return len(s.pilots("%i")) == 3 })

	s.limit("modify user ME set maxjobs=2")
	s.on("login", "scancel "+s.pilots("%i")[0])
	said("the account runs as many jobs as it may (AssocMaxJobsLimit)")
	s.limit("modify user ME set maxjobs=-1")
	s.await("three pilots work again", func() bool { return len(s.pilots("%i")) == 3 })

	if code, out := run.wait(); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	// Two pilots with two attempts each were cancelled by the test.
	if attempts := s.settled(name, trials); attempts > trials+4 {
		t.Errorf("%d attempts of %d trials: some ended because of a limit", attempts, trials)
	}
	t.Logf("%s", run.said())
	s.empty()
}

// From its beginning, a run may have fewer jobs than it wants: the array is refused as
// a whole, and the run goes on with as many pilots as the quality of service allows.
func TestARunWithFewerPilotsThanItWants(t *testing.T) { //nolint:paralleltest // the cluster is shared
	s := newSite(t, "--accounting")
	s.limit("add qos few maxsubmitjobsperuser=1")
	s.limit("modify user ME set qos+=few")
	const trials, name = 6, "few"
	s.experiment(name, trials, with(executor("requeue"), `qos = "few"`))
	if out := s.on("login", "sbatch --qos=few --array=0-2 --wrap=true 2>&1; true"); !strings.Contains(out, "QOSMaxSubmitJobPerUserLimit") {
		t.Fatalf("three jobs are allowed, and the test proves nothing: %s", out)
	}
	out := s.berth(name, "run . --no-live; echo code $?")
	if !strings.Contains(out, "the quality of service lets you submit no more jobs (QOSMaxSubmitJobPerUserLimit)") || !strings.Contains(out, "code 0") {
		t.Errorf("%s", out)
	}
	t.Logf("%s", out)
	if attempts := s.settled(name, trials); attempts != trials {
		t.Errorf("%d attempts of %d trials", attempts, trials)
	}
	s.empty()
}
