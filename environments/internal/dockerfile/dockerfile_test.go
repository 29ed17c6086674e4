package dockerfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, lines ...string) *File {
	t.Helper()
	f, err := Read([]byte(strings.Join(lines, "\n")), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEverythingThatIsApplied(t *testing.T) {
	t.Parallel()
	got := read(t,
		`# syntax=docker/dockerfile:1`,
		`ARG TAG=bookworm`,
		`FROM debian:${TAG}-slim`,
		`ARG TAG`,
		`ARG NAME=app COUNT=1`,
		`LABEL a="b c" tag=$TAG`,
		`ENV HOME=/srv \`,
		`    # a comment between lines`,
		`    GREETING="hello $NAME"`,
		`ENV OLD form of it`,
		`WORKDIR /srv`,
		`WORKDIR ${NAME}/data`,
		`USER 1000:1000`,
		`COPY ["a.txt", "with space.txt", "./"]`,
		`COPY --chown=bob:staff --chmod=640 ["b.txt", "/etc/b.txt"]`,
		`ADD archive.txt /opt`,
		`COPY <<EOF /etc/motd`,
		`welcome to $NAME`,
		`EOF`,
		`SHELL ["/bin/bash", "-c"]`,
		`ENTRYPOINT ["/bin/run", "$HOME"]`,
		`CMD echo $HOME`,
		`EXPOSE 80`,
		`HEALTHCHECK CMD true`,
		`STOPSIGNAL SIGTERM`,
	)
	want := &File{
		From: "debian:bookworm-slim", FromLine: 3,
		Env:     map[string]string{"HOME": "/srv", "GREETING": "hello app", "OLD": "form of it"},
		User:    "1000:1000",
		Workdir: "/srv/app/data",
		Shell:   []string{"/bin/bash", "-c"},
		Entrypoint: []string{
			"/bin/run", "$HOME",
		},
		Cmd: []string{"/bin/bash", "-c", "echo $HOME"},
		Steps: []Step{
			{Folder: "/srv"},
			{Folder: "/srv/app/data"},
			{Copy: &Copy{Line: 14, Sources: []string{"a.txt", "with space.txt"}, To: "/srv/app/data/"}},
			{Copy: &Copy{Line: 15, Sources: []string{"b.txt"}, To: "/etc/b.txt", User: "bob", Group: "staff", Mode: "640"}},
			{Copy: &Copy{Line: 16, Sources: []string{"archive.txt"}, To: "/opt"}},
			{Copy: &Copy{Line: 17, Inline: []Inline{{"EOF", "welcome to app\n"}}, To: "/etc/motd"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatCannotBeAppliedIsListedWithItsLine(t *testing.T) {
	t.Parallel()
	got := read(t,
		`FROM debian`,
		`RUN apt-get update && \`,
		`    apt-get install -y git`,
		`VOLUME /data`,
		`COPY --from=builder /out /out`,
		`ADD https://example.com/x.tar /x`,
		`COPY --chmod=u+x a /a`,
		`COPY --parents a/b /c/`,
		`ONBUILD RUN true`,
		`RUN <<EOF`,
		`echo one`,
		`EOF`,
	)
	type row struct {
		line int
		what string
	}
	var rows []row
	for _, r := range got.Refused {
		rows = append(rows, row{r.Line, r.Instruction})
		if r.Why == "" || r.Text == "" || strings.Contains(r.Text, "\n") {
			t.Errorf("refusal %+v says too little or too much", r)
		}
	}
	want := []row{
		{2, "RUN"},
		{4, "VOLUME"},
		{5, "COPY"},
		{6, "ADD"},
		{7, "COPY"},
		{8, "COPY"},
		{9, "ONBUILD"},
		{10, "RUN"},
	}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(got.Steps) != 0 {
		t.Errorf("refused copies are applied: %+v", got.Steps)
	}
}

func TestOnlyTheLastStageAndWhatItStandsOnCount(t *testing.T) {
	t.Parallel()
	got := read(t,
		`FROM golang AS builder`,
		`RUN go build`,
		`FROM debian AS base`,
		`ENV A=1`,
		`ARG LOST=x`,
		`WORKDIR /base`,
		`FROM base`,
		`ENV B=$A$LOST`,
		`WORKDIR top`,
	)
	if len(got.Refused) != 0 || got.From != "debian" || got.FromLine != 3 || got.Workdir != "/base/top" {
		t.Errorf("got %+v", got)
	}
	if got.Env["B"] != "1" {
		t.Errorf("B is %q: an ARG must not outlive its stage", got.Env["B"])
	}
}

func TestWhatIsNoDockerfileIsAnErrorWithItsLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"empty", "", "no instructions"},
		{"nothing before FROM", "RUN true\nFROM x", "line 1"},
		{"unknown instruction", "FROM x\n\nRUNN true", "line 3"},
		{"no arguments", "FROM x\nWORKDIR", "line 2"},
		{"unknown flag", "FROM x\nCOPY --foo=1 a b", "line 2"},
		{"open quote", "FROM x\nENV A=\"b", "line 2"},
		{"only arguments", "ARG A=1", "no FROM"},
		{"variable that fails", "FROM x\nUSER ${A:?needed}", "line 2"},
		{"empty base", "ARG A\nFROM $A", "line 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := Read([]byte(tt.in), "", nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Read(%q) = %+v, %v; want an error with %q", tt.in, f, err, tt.want)
			}
		})
	}
}

func TestPathOfTheBaseIsKept(t *testing.T) {
	t.Parallel()
	if got := read(t, "FROM x", "ENV PATH=/opt/bin:$PATH", "ENV PATH=/opt/sbin:$PATH").Env["PATH"]; got != "/opt/sbin:/opt/bin:"+Path {
		t.Errorf("PATH is %q", got)
	}
	if got, ok := read(t, "FROM x").Env["PATH"]; ok {
		t.Errorf("PATH is %q, want it left to the base", got)
	}
}

func TestTargetAndArgs(t *testing.T) {
	const text = "ARG BASE=one\nFROM $BASE AS build\nARG LEVEL=1\nENV LEVEL=$LEVEL\nFROM build\nENV LAST=1\n"
	f, err := Read([]byte(text), "build", map[string]string{"BASE": "two", "LEVEL": "9"})
	if err != nil || f.From != "two" || f.Env["LEVEL"] != "9" || f.Env["LAST"] != "" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err = Read([]byte(text), "other", nil); err == nil || !strings.Contains(err.Error(), `no stage "other"`) {
		t.Errorf("a stage that is not there: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("FROM a\nCOPY <<E /x\nE\n"))
	f.Add([]byte("ARG A=1\nFROM $A\nENV ${A:-b}=c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(data, "", nil)
		if (got == nil) == (err == nil) {
			t.Fatalf("Read(%q) = %v, %v", data, got, err)
		}
		if got == nil {
			return
		}
		for _, s := range got.Steps {
			to := s.Folder
			if s.Copy != nil {
				to = s.Copy.To
			}
			if !strings.HasPrefix(to, "/") || strings.Contains(to, "/../") {
				t.Errorf("Read(%q): leads to %q", data, to)
			}
		}
	})
}
