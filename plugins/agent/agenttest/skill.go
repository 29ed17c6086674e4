package agenttest

import (
	"context"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// skillClauses are about the skills of a task.
var skillClauses = []conformance.Clause[Subject]{
	{
		Name:   "its model learns of a skill, if it supports them",
		Guards: "an agent that announces skills and leaves them out, so that its tasks are harder than those of others",
		Time:   30 * time.Second,
		Skip: func(s Subject) string {
			if s.Seen == nil || s.Shell == nil {
				return "the requests to its model cannot be seen here"
			}
			return unable(s)
		},
		Run: skilled,
	},
}

// skilled runs a turn in a sandbox that has a skill.
func skilled(ctx context.Context, t *conformance.T, s Subject) {
	needs, err := s.check(ctx)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	if !needs.Skills {
		return // the core says in the first message where they are
	}
	const dir, mark = "/tmp/kit-skills", "KIT-SKILL-MARK"
	setup, _ := s.setup(ctx, t)
	setup.Skills = []string{dir}
	shell, err := sandbox.Dial(setup.Shell)
	if err != nil {
		t.Fatalf("place a skill: %v", err)
	}
	defer func() { _ = shell.Close() }()
	_, err = shell.Exec(ctx, sandbox.Command{Argv: []string{"mkdir", "-p", dir + "/tables"}})
	if err == nil {
		err = shell.WriteFile(ctx, dir+"/tables/SKILL.md", []byte("---\nname: tables\ndescription: "+mark+" how tables are read\n---\nRead them.\n"), sandbox.FileOptions{})
	}
	if err != nil {
		t.Fatalf("place a skill: %v", err)
	}
	session, err := s.Agent.Open(ctx, setup)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if _, err = session.Turn(ctx, message, &record{}); err != nil {
		t.Fatalf("turn: %v", err)
	}
	if !s.Seen(mark) {
		t.Errorf("Check says that it supports skills, and no request to its model had the description of the skill in Setup.Skills")
	}
	if err = session.Close(ctx, "", &record{}); err != nil {
		t.Errorf("close: %v", err)
	}
}
