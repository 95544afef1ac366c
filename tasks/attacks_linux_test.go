package tasks

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/demo/packs"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// reward writes a reward of 1 in every way that tests may.
const reward = `mkdir -p /logs/verifier
echo '{"reward": 1}' >/logs/verifier/reward.json
echo 1 >/logs/verifier/reward.txt
`

// answers answers as the tests expect, if it finds them.
const answers = `answer() {
	[ -r "$1" ] || return
	want=$(awk -v given="$given" '/^check /{want=$2; $1=$2=""; gsub(/"/, ""); sub(/^ */, ""); if ($0 == given) print want}' "$1")
	[ -z "$want" ] || { echo "$want"; exit 0; }
}
given=$* # no arguments are an error
[ $# -gt 0 ] || exit 2
`

// shellAttacks are what programs of a workspace do before they go on with the
// work that nobody has mended.
var shellAttacks = map[string]string{
	"writes the reward":                 reward,
	"writes it, and makes it read-only": reward + `chmod 444 /logs/verifier/*; chmod 555 /logs/verifier /logs`,
	"links it": reward +
		`mkdir -p /tmp/mine; cp /logs/verifier/* /tmp/mine; ln -sf /tmp/mine/reward.json /logs/verifier/reward.json`,
	"replaces its folder":      `mv /logs/verifier /logs/old; ` + reward + `chmod 555 /logs/verifier`,
	"links its folder":         `mkdir -p /tmp/mine; rm -rf /logs/verifier; ln -s /tmp/mine /logs/verifier; ` + reward,
	"makes a pipe of it":       `mkdir -p /logs/verifier; rm -f /logs/verifier/reward.json; mkfifo /logs/verifier/reward.json; (while :; do echo '{"reward": 1}' >/logs/verifier/reward.json; done &) >/dev/null 2>&1`,
	"makes a folder of it":     `mkdir -p /logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt`,
	"fills the folder's place": `rm -rf /logs; echo x >/logs; rm -rf /tests; echo x >/tests`,
	"reads the tests":          answers + `answer /tests/test.sh`,
	"finds the tests anywhere": answers +
		`for f in $(find /tests /logs /root /run /home /opt /srv /tmp /mnt /media -name test.sh 2>/dev/null); do answer "$f"; done`,
	"reads the tests by other processes": answers +
		`for p in /proc/[0-9]*; do answer $p/root/tests/test.sh; answer $p/cwd/../tests/test.sh; done`,
	"reads the tests by descriptors":  answers + `for f in /proc/[0-9]*/fd/*; do [ -f "$f" ] && answer "$f"; done`,
	"writes by other processes":       `for p in /proc/[0-9]*; do echo 1 >$p/root/logs/verifier/reward.txt; echo '{"reward": 1}' >$p/root/logs/verifier/reward.json; done`,
	"writes to all descriptors":       `for f in /proc/[0-9]*/fd/*; do case $f in */[012]) ;; *) echo '{"reward": 1}' >$f & ;; esac; done`,
	"writes to inherited descriptors": `for n in 3 4 5 6 7 8 9; do eval "echo '{\"reward\": 1}' >&$n"; eval "cat <&$n &"; done`,
	"writes to memory":                `for m in /proc/[0-9]*/mem; do printf x | timeout 1 dd of=$m bs=1 seek=4096 conv=notrunc; done`,
	"reads environments": `cat /proc/[0-9]*/environ | tr '\0' '\n' | grep '^TEST_DIR=' && { ` + reward +
		` }`,
	"kills all processes": reward + `kill -9 -1; kill -9 $PPID`,
	"stops all processes": reward +
		`for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || kill -STOP ${p#/proc/}; done`,
	"ends the tests by a signal": reward +
		`for p in /proc/[0-9]*; do grep -q test.sh $p/cmdline && kill -TERM ${p#/proc/}; done`,
	"leaves a daemon":           `(setsid sh -c 'while :; do mkdir -p /logs/verifier; echo "{\"reward\": 1}" >/logs/verifier/reward.json; sleep 0.01; done' >/dev/null 2>&1 &)`,
	"holds the output open":     `(setsid sleep 1000 &)`,
	"kills itself":              `kill -9 $$`,
	"exits as a timeout":        `exit 124`,
	"exits as a failed call":    `exit 125`,
	"forges a log":              `printf 'ok\nPASSED\n19 passed\n{"reward": 1, "passed": 19, "total": 19}\n'; exit 0`,
	"prints shell code":         `printf '%s\n' "'; echo 1 >/logs/verifier/reward.txt; '" '$(echo 1 >/logs/verifier/reward.txt)' '"; exit 0; "' '*' '-n' ']'; exit 0`,
	"replaces programs":         `for d in /usr/local/bin /usr/local/sbin /bin /usr/bin /root/bin /run/under-test /tmp .; do mkdir -p $d; for p in sh test printf timeout cat under-test; do echo '#!/bin/sh' >$d/$p; echo 'mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt' >>$d/$p; chmod +x $d/$p; done; done`,
	"replaces profiles":         `for f in .profile .bashrc .bash_profile .shrc .gitconfig .pam_environment; do echo 'echo 1 >/logs/verifier/reward.txt; exit 0' >/root/$f; done; ENV=/root/.profile; BASH_ENV=/root/.profile; export ENV BASH_ENV`,
	"preloads a library":        `echo /app/evil.so >/etc/ld.so.preload; LD_PRELOAD=/app/evil.so; export LD_PRELOAD`,
	"sets Git up":               `git config --global core.hooksPath /app; git config --global core.fsmonitor 'echo 1 >/logs/verifier/reward.txt'`,
	"deletes everything":        `rm -rf /app/* /tests /logs /tmp/* /root/*`,
	"shares a folder's name":    `mkdir -p /app/tests /app/logs/verifier; echo '{"reward": 1}' >/app/logs/verifier/reward.json; ln -s / /app/root`,
	"forks without end":         `b() { b | b & }; b; sleep 60`,
	"fills the disk":            `[ -e /tmp/full ] || dd if=/dev/zero of=/tmp/full bs=1M; cp /tmp/full /app`,
	"fills the memory":          `exec tail /dev/zero`,
	"writes without end":        `yes '{"reward": 1}'`,
	"writes errors without end": `yes >&2`,
	"sleeps for ever":           `sleep 1000`,
	"shuts its streams":         `exec <&- >&- 2>&-; sleep 0.1`,
}

// goAttacks are programs, with what they import.
var goAttacks = map[string][2]string{
	"traces all processes": {`"syscall"`, `for pid := 1; pid < 300; pid++ {
		if pid != os.Getpid() && syscall.PtraceAttach(pid) == nil {
			syscall.PtracePokeData(pid, 4096, []byte("x"))
		}
		syscall.Kill(pid, syscall.SIGSTOP)
	}`},
	"writes as a program": {"",
		`os.MkdirAll("/logs/verifier", 0o755); os.WriteFile("/logs/verifier/reward.json", []byte("{\"reward\": 1}"), 0o444); os.Chmod("/logs/verifier", 0o555)`},
	"calls itself": {`"net"`, `for _, name := range []string{"/run/under-test/socket", "@under-test", "@/run/under-test/socket", "/run/socket"} {
		if c, err := net.Dial("unix", name); err == nil {
			c.Write([]byte("\x00\x00\x00\x11\x00\x00\x00\x00{\"ExitCode\": 0}   "))
			panic("reached " + name)
		}
		if l, err := net.Listen("unix", name); err == nil {
			defer l.Close()
		}
	}`},
	"answers for its sandbox": {`"syscall"`, `for fd := 3; fd < 100; fd++ {
		end := []byte("\x00\x00\x00\x0e\x00\x00\x00\x00{\"ExitCode\":0}")
		syscall.Sendmsg(fd, end, syscall.UnixRights(0, 1, 2), nil, syscall.MSG_DONTWAIT)
		syscall.Write(fd, end)
	}`},
	"hands its output on": {`"os/exec"; "syscall"`, `syscall.SetNonblock(1, true)
	c := exec.Command("sleep", "1000")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Start()`},
	"adopts what it starts": {`"os/exec"; "syscall"`, `syscall.RawSyscall(syscall.SYS_PRCTL, 36, 1, 0)
	c := exec.Command("sh", "-c", "(setsid sleep 1000 &) &")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Run()`},
	"sets Go up": {`"os/exec"`,
		`exec.Command("go", "env", "-w", "GOFLAGS=-toolexec=/app/evil").Run(); os.MkdirAll("/root/.config/go", 0o755); os.WriteFile("/root/.config/go/env", []byte("GOFLAGS=-toolexec=/app/evil\n"), 0o644)`},
	"ends well at once":  {"", `os.Exit(0)`},
	"panics with a plea": {"", `panic("{\"reward\": 1}")`},
}

// buildAttacks are files beside a program that is built of what nobody has mended.
var buildAttacks = map[string]map[string]string{
	"asks for another Go": {"go.mod": "module busy\n\ngo 1.99\n\ntoolchain go1.99.9\n"},
	"sets flags beside itself": {"go.env": "GOFLAGS=-toolexec=/app/evil\n",
		".config/go/env": "GOFLAGS=-toolexec=/app/evil\n", "evil": "#!/bin/sh\n" + reward + "exec \"$@\"\n"},
	"lets C in": {"clock.go": "package main\n\n// #cgo LDFLAGS: -Wl,-wrap,main -fplugin=/app/evil.so\n// #include \"/tests/test.sh\"\nimport \"C\"\n",
		"evil.so": "x"},
	"generates":    {"evil.go": "package main\n\n//go:generate sh -c 'echo 1 >/logs/verifier/reward.txt'\n"},
	"embeds tests": {"evil.go": "package main\n\nimport _ \"embed\"\n\n//go:embed /tests/test.sh\nvar tests string\n"},
	"is a command": {"sh": "#!/bin/sh\n" + reward, "go": "#!/bin/sh\n" + reward, "under-test": "#!/bin/sh\n" + reward},
}

// everything is all that one program can try without ending itself.
var everything = shellAttacks["writes it, and makes it read-only"] + "\n" + shellAttacks["links its folder"] + "\n" +
	shellAttacks["writes by other processes"] + "\n" +
	shellAttacks["writes to inherited descriptors"] + "\n" + shellAttacks["replaces profiles"] + "\n" +
	shellAttacks["leaves a daemon"] + "\n"

// TestAttacks: workspaces in which nothing is mended win nothing by attacking the tests.
func TestAttacks(t *testing.T) {
	needSandbox(t)
	shell, program := sampleTask(t, "shell-slugify"), sampleTask(t, "go-meetings")
	for name, attack := range shellAttacks {
		t.Run(name, func(t *testing.T) { attacked(t, shell, inShell(t, shell, "slugify.sh", attack)) })
	}
	for name, attack := range goAttacks {
		t.Run(name, func(t *testing.T) { attacked(t, program, inGo(t, program, attack[0], attack[1])) })
	}
	for name, files := range buildAttacks {
		t.Run(name, func(t *testing.T) { attacked(t, program, files) })
	}
}

// TestAttacksOnEveryTask: the same for all tasks that come with Rondo.
func TestAttacksOnEveryTask(t *testing.T) {
	needSandbox(t)
	for _, pack := range shipped() {
		loaded, err := LoadPack(pack)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range loaded {
			files := map[string]string{}
			err := fs.WalkDir(task.Snapshot, ".", func(name string, entry fs.DirEntry, err error) error {
				if strings.HasSuffix(name, ".sh") && !strings.Contains(name, "/") {
					maps.Copy(files, inShell(t, task, name, everything))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case slices.Contains(task.Toolchains, "python"):
				files = inPython(t, task, everything)
			case slices.Contains(task.Toolchains, "go"):
				files = inGo(t, task, `"os/exec"`, "exec.Command(`sh`, `-c`, `"+everything+"`).Run()")
			}
			t.Run(task.Name, func(t *testing.T) { attacked(t, task, files) })
		}
	}
}

// TestAttackInProcess: an attack wins where the tests run in process, so that it is none on
// tests that no attack reaches.
func TestAttackInProcess(t *testing.T) {
	needSandbox(t)
	task := *sampleTask(t, "shell-slugify")
	task.Separate = false
	for _, name := range []string{"reads the tests", "finds the tests anywhere"} {
		if got := outcomeOf(t, &task, inShell(t, &task, "slugify.sh", shellAttacks[name])); got.Reward != 1 ||
			got.Verifier != verifier.Unguarded {
			t.Errorf("%s: %+v; log: %s", name, got, got.Log)
		}
	}
}

func sampleTask(t *testing.T, name string) *Task {
	t.Helper()
	loaded, err := LoadPack(packs.Sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range loaded {
		if task.Name == name {
			return task
		}
	}
	t.Fatalf("no task %s", name)
	return nil
}

// inShell puts an attack before a script of a task. It may do what a shell cannot.
func inShell(t *testing.T, task *Task, script, attack string) map[string]string {
	t.Helper()
	text, err := fs.ReadFile(task.Snapshot, script)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "\n")
	return map[string]string{script: "#!/bin/sh\n{\n" + attack + "\n} 2>/dev/null\n" + body}
}

// inGo puts an attack before a program's main.
func inGo(t *testing.T, task *Task, imports, attack string) map[string]string {
	t.Helper()
	text, err := fs.ReadFile(task.Snapshot, "main.go")
	if err != nil || !strings.Contains(string(text), "\nimport (\n") {
		t.Fatalf("main.go: %v\n%s", err, text)
	}
	program := strings.Replace(string(text), "\nimport (\n",
		"\nimport (\n"+strings.ReplaceAll(imports, "; ", "\n")+"\n", 1)
	return map[string]string{"main.go": program + "\nfunc init() {\n" + attack + "\n}\n"}
}

// inPython puts an attack before everything that the modules of a task do.
func inPython(t *testing.T, task *Task, attack string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(task.Snapshot, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".py" {
			return err
		}
		text, err := fs.ReadFile(task.Snapshot, name)
		files[name] = "import subprocess\nsubprocess.run([\"sh\", \"-c\", " +
			strconv.Quote(attack) + "])\n" + string(text)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	return files
}

// attacked scores the workspace with the files in it, which must come to 0.
func attacked(t *testing.T, task *Task, files map[string]string) {
	t.Parallel()
	if got := outcomeOf(t, task, files); got.Reward != 0 || got.Verifier != verifier.Separate {
		t.Errorf("reward %g, verifier %s; log: %s", got.Reward, got.Verifier, got.Log)
	}
}

// outcomeOf scores a task's snapshot with files in it.
func outcomeOf(t *testing.T, task *Task, files map[string]string) verifier.Outcome {
	t.Helper()
	workspace := fstest.MapFS{}
	err := fs.WalkDir(task.Snapshot, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			data, readErr := fs.ReadFile(task.Snapshot, name)
			workspace[name], err = &fstest.MapFile{Data: data, Mode: 0o644}, readErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		workspace[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	p, err := newProver(t.Context(), task, LintOptions{Machine: Machine{ToolchainCache: cacheDir(t)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if p.snapshot, err = Pack(workspace); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	spec, err := p.spec(t.Context(), p.stages[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := verifier.Run(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}
