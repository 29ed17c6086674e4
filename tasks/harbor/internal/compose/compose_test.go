package compose

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/task"
)

// nothing has no files.
func nothing(name string) (map[string][]byte, error) {
	return nil, fmt.Errorf("%s does not exist", name)
}

const everything = `# a comment
version: "3.8"
x-env: &env
  A: one
  B: 2
services:
  main:
    depends_on:
      db: {condition: service_healthy}
      init: {condition: service_completed_successfully}
    environment:
      <<: *env
      C: "cost: $$5"
  db:
    image: redis:7
    command: redis-server --save ""
    environment: ["X=1", "Y=${NOPE:-why}"]
    healthcheck:
      test: redis-cli ping
      interval: 1s
      timeout: 1m30s
      retries: 5
      start_period: 2s
    volumes: ["data:/var/lib/data"]
    expose: [6379, "6380/tcp"]
    user: "999"
    working_dir: /data
  init:
    build: {context: ./init, dockerfile: Other}
    entrypoint: ["/init", "now"]
    command: []
    depends_on: [db]
    healthcheck: {disable: true}
volumes:
  data:
`

func TestRead(t *testing.T) {
	f, problems := Read(t.Context(), "c.yaml", []byte(everything), Variables{}, nothing)
	var said []string
	for _, p := range problems {
		said = append(said, p.String())
	}
	if want := []string{
		"c.yaml:17:26: warning: Default is used. NOPE of the host is not let through. Allow it with --allow-env NOPE.",
		"c.yaml:2:1: warning: Key without effect. Remove it: compose files have no version any more.",
	}; !reflect.DeepEqual(said, want) {
		t.Errorf("problems\n%s", strings.Join(said, "\n"))
	}
	if want := (task.Sidecar{
		Name: "main", Env: task.Text(map[string]string{"A": "one", "B": "2", "C": "cost: $5"}),
		DependsOn: map[string]string{"db": task.StateHealthy, "init": task.StateCompleted},
	}); !reflect.DeepEqual(f.Main, want) {
		t.Errorf("main\n %+v\n %+v", f.Main, want)
	}
	want := []task.Sidecar{{
		Name: "db", Image: "redis:7", Command: []string{"redis-server", "--save", ""},
		Env: task.Text(map[string]string{"X": "1", "Y": "why"}), Workdir: "/data", User: "999",
		Healthcheck: &task.Healthcheck{
			Argv: []string{"/bin/sh", "-c", "redis-cli ping"}, Interval: task.Duration(time.Second), Timeout: task.Duration(90 * time.Second),
			StartPeriod: task.Duration(2 * time.Second), StartInterval: task.Duration(5 * time.Second), Retries: 5,
		},
		Expose: []int{6379, 6380}, Volumes: []task.Volume{{Name: "data", Target: "/var/lib/data"}},
	}, {
		Name: "init", Build: &task.Build{Context: "init", File: "Other"}, Entrypoint: []string{"/init", "now"}, Command: []string{},
		DependsOn: map[string]string{"db": task.StateStarted},
	}}
	if !reflect.DeepEqual(f.Sidecars, want) {
		t.Errorf("sidecars\n %+v\n %+v", f.Sidecars, want)
	}
}

// What would reach out of the task, and what is not carried out, is refused by
// name, with the line.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ service, want string }{
		{"privileged: true", "privileged is refused"},
		{"network_mode: host", "network_mode is refused"},
		{"cap_add: [SYS_ADMIN]", "cap_add is refused"},
		{"devices: [/dev/kvm]", "devices is refused"},
		{"security_opt: ['seccomp=unconfined']", "security_opt is refused"},
		{"pid: host", "pid is refused"},
		{"network_mode: service:b", "network_mode is refused"},
		{"env_file: ../../.env", "File is not of the task"},
		{"env_file: /etc/environment", "File is not of the task"},
		{"env_file: gone.env", "File cannot be read"},
		{"configs: [gone]", "Nothing of that name"},
		{"extra_hosts: ['host.docker.internal:host-gateway']", "Name of another host"},
		{"extra_hosts: ['a.b:10.0.0.1']", "Name of another host"},
		{"extends: {file: ../x.yaml, service: y}", "extends is refused"},
		{"volumes: ['/:/host']", "Mount of the host"},
		{"volumes: ['./data:/data']", "File cannot be read"},
		{"volumes: ['../tests:/data']", "Mount of the host"},
		{"volumes: ['~/.ssh:/x']", "Mount of the host"},
		{"volumes: ['/var/run/docker.sock:/var/run/docker.sock']", "Socket of the host"},
		{"volumes: [{type: bind, source: /etc, target: /e}]", "Mount of the host"},
		{"volumes: ['data:/data']", "Volume is not declared"},
		{"command: echo $HOME", "Variable of the host"},
		{"command: ['${A:?no}']", "Variable of the host"},
		{"command: ['${A']", "Malformed variable"},
		{"build: ../..", "Build is not of the task's own folder"},
		{"build: {context: ., dockerfile: x, dockerfile_inline: FROM y}", "Said twice"},
		{"build: /etc", "Build is not of the task's own folder"},
		{"build: https://example.com/x.git", "Build is not of the task's own folder"},
		{"build: {context: ., dockerfile: ../x}", "Dockerfile is not in the build's folder"},
		{"build: {context: ., args: [HOME]}", "Variable of the host"},
		{"build: {context: ., args: {A: '${HOME}'}}", "Variable of the host"},
		{"build: {context: ., secrets: [x]}", "secrets is not supported"},
		{"environment: {A: '${HOME:+x}'}", "Variable of the host"},
		{"command: ['${A:-${HOME}}']", "Variable of the host"},
		{"command: ['${A:-b} ${HOME}']", "Variable of the host"},
		{"build: {dockerfile: x}", "Build is not of the task's own folder"},
		{"networks: {a: {ipv4_address: 10.0.0.1}}", "ipv4_address is not supported"},
		{"networks: {a: {aliases: [b]}}", "services.a.aliases[0] is \"b\""},
		{"hostname: localhost", "services.a.hostname is \"localhost\""},
		{"domainname: example.com", "domainname is not supported"},
		{"links: ['b:c']", "links is not supported"},
		{"deploy: {replicas: 2}", "replicas is not supported"},
		{"volumes: ['${HOST_VERIFIER_LOGS_PATH}:/x']", "Variable of the host"},
		{"imge: x", "imge is not supported"},
		{"mem_limit: -5", "Limit is negative"},
		{"healthcheck: {tst: x}", "tst is not supported"},
		{"healthcheck: {interval: 1s}", "Healthcheck has no test"},
		{"depends_on: [nobody]", "services.a.depends_on.nobody is not the name"},
		{"depends_on: {a: {condition: service_started}}", "services.a.depends_on.a is not the name"},
		{"depends_on: {b: {condition: service_started, restart: true}}", "restart is not supported"},
		{"expose: ['80-90']", "Not a TCP port"},
		{"entrypoint: []", "Service runs nothing"},
		{"working_dir: x", "Working directory is not absolute"},
		{"command: !reset null", "Tag is not supported"},
		{"<<: *priv", "privileged is refused"},
		{"<<: [*priv]", "privileged is refused"},
		{"healthcheck: *priv", "privileged is refused"},
	} {
		file := "x-p: &priv {privileged: true}\nservices:\n  b:\n    image: y\n    expose: [81]\n  a:\n    image: x\n    " + tt.service + "\n"
		_, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{}, nothing)
		found := false
		for _, p := range problems {
			found = found || strings.HasPrefix(p.Summary, tt.want) && p.Severity == task.Error && (p.Line == 8 || p.Line > 0 && strings.Contains(tt.service, "*"))
		}
		if !found {
			t.Errorf("%s: got %v, want %q on line 8", tt.service, problems, tt.want)
		}
	}
}

func TestRefusedOnTop(t *testing.T) {
	var deep strings.Builder
	deep.WriteString("x-0: &x0 {a: {b: c}}\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&deep, "x-%d: &x%d {", i, i)
		for j := range 9 {
			fmt.Fprintf(&deep, "k%d: *x%d, ", j, i-1)
		}
		deep.WriteString("}\n")
	}
	for file, want := range map[string]string{
		"services: [":                                                "Not valid YAML",
		"include: [other.yaml]":                                      "include is refused",
		"networks: {a: {external: true}}":                            "external is refused",
		"secrets: {a: {environment: HOME}}":                          "environment is not supported",
		"networks: {a: {internal: true}}\nservices: {b: {image: x}}": "Network is internal",
		"services: {a: {image: x, secrets: [s]}}\nsecrets: {s: {file: /etc/shadow}}":                         "Mount of the host",
		"services: {a: {image: x, configs: [{source: s, target: /x}]}}\nconfigs: {s: {file: ../solution/x}}": "Mount of the host",
		"volumes: {a: {driver: local}}":                  "driver is refused",
		"volumes: {a: {external: true}}":                 "external is refused",
		"servces: {}":                                    "servces is not supported",
		"services: {a: {image: x}}\n---\nservices: {}":   "More than one document",
		"services: 3":                                    "Not a valid compose file",
		"services: {a: 3}":                               "Not a valid compose file",
		"services: {a: {}}":                              "Service has no image",
		deep.String() + "services: {a: {build: *x11}}\n": "k0 is not supported",
		deep.String() + "services: {a: {image: x, environment: *x11}}\n": "Too much",
	} {
		_, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{}, nothing)
		found := false
		for _, p := range problems {
			found = found || p.Summary == want && p.Severity == task.Error
		}
		if !found {
			t.Errorf("%.60q: got %v, want %q", file, problems, want)
		}
	}
	for file, want := range map[string]string{
		"services: " + strings.Repeat("[", 100_000): "line 1: nested too deeply",
		"#" + strings.Repeat(" ", 1<<20):            "larger than 1 MiB",
	} {
		if _, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{}, nothing); len(problems) != 1 || !strings.Contains(problems[0].Detail, want) {
			t.Errorf("%.20q…: got %v, want %q", file, problems, want)
		}
	}
	if f, problems := Read(t.Context(), "c.yaml", nil, Variables{}, nothing); len(problems) > 0 || len(f.Sidecars) > 0 {
		t.Errorf("an empty file: %+v, %v", f, problems)
	}
}

// Files of the task's own folder, and what real files say of networks, limits and
// profiles.
func TestFilesOfTheTask(t *testing.T) {
	t.Parallel()
	const file = `services:
  main:
    build:
      context: ..
      dockerfile_inline: "FROM x"
    network_mode: none
    env_file: [a.env, {path: gone.env, required: false}]
    environment: {B: own}
    pids_limit: 200
    tmpfs: /scratch:size=64m
    read_only: true
    ulimits: {nofile: {soft: 1, hard: 2}}
    dns: [8.8.8.8]
    extra_hosts: ["api.local:127.0.0.1"]
    volumes: [/cache, "./conf.d:/etc/conf.d:ro", {type: tmpfs, target: /ram, tmpfs: {size: 1}}]
    secrets: [token]
  web:
    image: y
    network_mode: bridge
    configs: [{source: site, target: /etc/site}, other]
    security_opt: ["no-new-privileges:true"]
  debug: {image: z, profiles: [debug]}
configs:
  site: {content: "listen 80;"}
  other: {file: ./other.txt}
secrets: {token: {file: token.txt}}
networks: {default: {internal: false}}
`
	f, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{}, func(name string) (map[string][]byte, error) {
		switch name {
		case "a.env":
			return map[string][]byte{"": []byte("A=1\nB=file\n# no\nexport C='2 3'\n")}, nil
		case "conf.d":
			return map[string][]byte{"one": []byte("1"), "sub/two": []byte("2")}, nil
		case "token.txt", "other.txt":
			return map[string][]byte{"": []byte(name)}, nil
		default:
			return nothing(name)
		}
	})
	for _, p := range problems {
		if p.Severity != task.Warning {
			t.Errorf("%v", p)
		}
	}
	copies := map[string]map[string][]byte{
		"main": {"/etc/conf.d/one": []byte("1"), "/etc/conf.d/sub/two": []byte("2"), "/run/secrets/token": []byte("token.txt")},
		"web":  {"/etc/site": []byte("listen 80;"), "/other": []byte("other.txt")},
	}
	main := task.Sidecar{
		Name: "main", Build: &task.Build{Context: "..", File: "berth.Dockerfile", Files: map[string][]byte{"berth.Dockerfile": []byte("FROM x")}},
		Env: task.Text(map[string]string{"A": "1", "B": "own", "C": "2 3"}), Limits: task.Limits{Pids: 200}, Aliases: []string{"api.local"},
	}
	if !reflect.DeepEqual(f.Main, main) || !f.NoNetwork || !reflect.DeepEqual(f.Copies, copies) || len(f.Sidecars) != 1 || f.Sidecars[0].Name != "web" {
		t.Errorf("main %+v\ncopies %q\nsidecars %+v", f.Main, f.Copies, f.Sidecars)
	}
}

// What a single container of the task cannot have, but can do without, is
// ignored with a warning.
func TestIgnored(t *testing.T) {
	const file = `services:
  a:
    image: x
    container_name: the-a
    ports: ["8080:80", {target: 81, published: "8081"}]
    restart: "no"
    networks: [inner]
    tty: true
    stdin_open: false
    platform: linux/amd64
    deploy: {resources: {limits: {cpus: "1.5", memory: 512M}}}
  b:
    image: ${MAIN_IMAGE_NAME}
    restart: unless-stopped
    init: true
    pull_policy: never
    labels: {a.b: c}
    logging: {driver: json-file, options: {max-size: 1m}}
    stop_grace_period: 1s
    stop_signal: SIGINT
    cpus: 0.5
    mem_limit: 256m
    shm_size: 64m
    volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
networks:
  inner: {driver: bridge}
`
	f, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{Given: map[string]string{
		"MAIN_IMAGE_NAME": "y", "HOST_VERIFIER_LOGS_PATH": HostLogs + "verifier", "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
	}}, nothing)
	var warned []string
	for _, p := range problems {
		if p.Severity != task.Warning {
			t.Errorf("%v", p)
		}
		warned = append(warned, p.Key)
	}
	want := []string{
		"services.a.container_name", "services.a.ports", "services.a.networks", "services.a.tty", "services.a.platform", "services.b.restart",
		"services.b.init", "services.b.pull_policy", "services.b.labels", "services.b.logging", "services.b.stop_grace_period", "services.b.stop_signal",
	}
	if !reflect.DeepEqual(warned, want) {
		t.Errorf("warned of %q, want %q", warned, want)
	}
	if sides := []task.Sidecar{
		{Name: "a", Image: "x", Expose: []int{80, 81}, Limits: task.Limits{CPUMilli: 1500, MemoryMiB: 512}}, {Name: "b", Image: "y", Limits: task.Limits{CPUMilli: 500, MemoryMiB: 256, ShmMiB: 64}},
	}; !reflect.DeepEqual(f.Sidecars, sides) {
		t.Errorf("got\n %+v, want\n %+v", f.Sidecars, sides)
	}
}

// Variables of containers may come from the host. Nothing else may.
func TestHostVariables(t *testing.T) {
	const file = `services:
  a:
    image: x${TAG:-1}
    environment:
      PLAIN: $$X${GIVEN}
      WHOLE: ${KEY}
      SHORT: $KEY
      NEEDED: ${KEY:?is missing}
      JOINED: "http://${USER}:${PASS:-none}@h/${DIR-d}/${OTHER:-o}"
      DEFAULT: ${DIR-here}
      NESTED: ${OTHER:-${KEY}}
      UNSET: "[${OTHER:-}]"
      FROM_HOST:
  b:
    image: y
    environment: ["SAME=${KEY}", FROM_HOST]
`
	f, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{
		Given: map[string]string{"GIVEN": "g"}, Allowed: func(name string) bool { return name != "OTHER" && name != "TAG" },
	}, nothing)
	for _, p := range problems {
		if p.Severity != task.Warning || p.Summary != "Default is used" || !strings.Contains(p.Detail, "OTHER") && !strings.Contains(p.Detail, "TAG") {
			t.Errorf("%v", p)
		}
	}
	if len(problems) != 4 || len(f.Sidecars) != 2 {
		t.Fatalf("%d problems: %v; services: %+v", len(problems), problems, f.Sidecars)
	}
	key := task.Value{Host: "KEY"}
	want := task.Env{
		"PLAIN": {Text: "$Xg"}, "WHOLE": key, "SHORT": key, "NEEDED": key, "NESTED": key, "UNSET": {Text: "[]"},
		"JOINED": {Parts: []task.Value{
			{Text: "http://"}, {Host: "USER"}, {Text: ":"}, {Host: "PASS", Default: new("none")}, {Text: "@h/"}, {Host: "DIR", Default: new("d")}, {Text: "/o"},
		}},
		"DEFAULT": {Host: "DIR", Default: new("here")}, "FROM_HOST": {Host: "FROM_HOST"},
	}
	if got := f.Sidecars[0]; !reflect.DeepEqual(got.Env, want) || got.Image != "x1" {
		t.Errorf("got\n %+v, want\n %+v; image %q", got.Env, want, got.Image)
	}
	if got := f.Sidecars[1].Env; !reflect.DeepEqual(got, task.Env{"SAME": key, "FROM_HOST": {Host: "FROM_HOST"}}) {
		t.Errorf("a list: %+v", got)
	}
}

func TestBuildsAndVolumes(t *testing.T) {
	const file = `services:
  main:
    build: {target: dev, args: {VERSION: 3, x-flag: "y"}}
    entrypoint: [/entry]
    volumes: ["data:/data:ro"]
  a:
    build: {context: ./a, args: ["A=b"]}
    entrypoint: [/entry]
    volumes: [{type: volume, source: data, target: /d, read_only: true}]
volumes: {data: {}}
`
	f, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{}, nothing)
	if len(problems) > 0 || len(f.Sidecars) != 1 {
		t.Fatal(problems)
	}
	if want := (&task.Build{Context: ".", File: "Dockerfile", Target: "dev", Args: map[string]string{"VERSION": "3"}}); !reflect.DeepEqual(f.Main.Build, want) {
		t.Errorf("main: %+v", f.Main.Build)
	}
	a := f.Sidecars[0]
	if want := (&task.Build{Context: "a", File: "Dockerfile", Args: map[string]string{"A": "b"}}); !reflect.DeepEqual(a.Build, want) {
		t.Errorf("a: %+v", a.Build)
	}
	if !f.Main.Volumes[0].ReadOnly || !a.Volumes[0].ReadOnly {
		t.Errorf("volumes: %+v, %+v", f.Main.Volumes, a.Volumes)
	}
	// The base file of the format gives main, and no other, a command.
	if !reflect.DeepEqual(f.Main.Command, []string{"sh", "-c", "sleep infinity"}) || a.Command != nil {
		t.Errorf("commands: %q, %q", f.Main.Command, a.Command)
	}
}

func TestHostNames(t *testing.T) {
	const file = `services:
  main: {hostname: work}
  a:
    image: x
    hostname: db.internal
    networks: {one: {aliases: [cache, a]}, two: {aliases: [cache, store]}, three: }
  b: {image: y, networks: [one]}
networks: {one: , two: , three: }
`
	f, problems := Read(t.Context(), "c.yaml", []byte(file), Variables{}, nothing)
	if task.Broken(problems) || len(f.Sidecars) != 2 {
		t.Fatal(problems)
	}
	a := f.Sidecars[0]
	if f.Main.Hostname != "work" || a.Hostname != "db.internal" || strings.Join(a.Aliases, " ") != "cache a store" || f.Sidecars[1].Aliases != nil {
		t.Errorf("main %q, a %q %q, b %q", f.Main.Hostname, a.Hostname, a.Aliases, f.Sidecars[1].Aliases)
	}
}

// Whatever stands in the file, reading it ends; what is not refused has no
// way out of the task.
func FuzzRead(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("services: {a: {image: x, volumes: ['/:/h']}}"))
	f.Add([]byte("a: &a [*a]\nservices: *a"))
	f.Add([]byte("services: {a: &a {<<: *a, image: x}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, problems := Read(t.Context(), "c.yaml", data, Variables{}, nothing)
		for _, p := range problems {
			if p.Summary == "" || p.Detail == "" || p.Line < 0 {
				t.Errorf("%q: %+v", data, p)
			}
		}
		if task.Broken(problems) {
			return
		}
		for _, s := range file.Sidecars {
			if s.Build != nil && (strings.HasPrefix(s.Build.Context, "/") || strings.HasPrefix(s.Build.Context, "..")) {
				t.Errorf("%q: build of %q", data, s.Build.Context)
			}
			for _, v := range s.Volumes {
				if strings.ContainsAny(v.Name, "/\\") {
					t.Errorf("%q: volume %q", data, v.Name)
				}
			}
		}
	})
}
