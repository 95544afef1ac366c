package compose_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stack is a clean clone with its containers.
type stack struct {
	t   *testing.T
	dir string
	env []string
	// log is where its NATS servers are reached from outside of the containers.
	log string
}

// newStack copies what a clone of the repository would have, with an .env that was
// filled in as its example says.
func newStack(t *testing.T, settings map[string]string) *stack {
	t.Helper()
	alone(t)
	dir := t.TempDir()
	list := must(t, exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"))
	tar := exec.Command("tar", "--create", "--directory", root, "--files-from", "-")
	tar.Stdin = strings.NewReader(list)
	untar := exec.Command("tar", "--extract", "--directory", dir)
	pipe, err := tar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	untar.Stdin = pipe
	if err := untar.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tar.Run(); err != nil {
		t.Fatalf("copy the repository: %v", err)
	}
	if err := untar.Wait(); err != nil {
		t.Fatalf("copy the repository: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ".env.example"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "#"), "=")
		if value, ok := settings[name]; ok {
			lines[i] = name + "=" + value
			delete(settings, name)
		}
	}
	if len(settings) > 0 {
		t.Fatalf(".env.example has no %v", settings)
	}
	write(t, filepath.Join(dir, ".env"), strings.Join(lines, "\n"), 0o600)
	// Settings of this machine must not stand in for missing ones.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RONDO_") || strings.HasPrefix(v, "AWS_") || strings.HasPrefix(v, "COMPOSE_")
	})
	s := &stack{t: t, dir: dir, log: "nats://" + publish + ":4222",
		env: append(env, fmt.Sprintf("COMPOSE_PROJECT_NAME=%s%d", projects, os.Getpid()))}
	t.Cleanup(s.remove)
	return s
}

// remove leaves nothing behind: no container, network, volume or image of the test.
func (s *stack) remove() {
	if s.t.Failed() {
		out, _ := s.command("logs", "--no-color", "--tail", "40").CombinedOutput()
		s.t.Logf("docker compose logs:\n%s", out)
	}
	project := s.env[len(s.env)-1][len("COMPOSE_PROJECT_NAME="):]
	s.eventually(time.Minute, "everything is taken down", func() bool {
		_, err := output(s.command("--profile", "demo", "--profile", "cli", "--profile", "gateway", "--profile",
			"observability", "down", "--volumes", "--remove-orphans", "--timeout", "10"))
		if err != nil {
			s.t.Logf("take everything down: %v", err)
			s.detach(project)
		}
		return err == nil
	})
	for _, kind := range []string{"container", "volume", "network"} {
		if left := leftovers(s.t, kind); len(left) > 0 {
			s.t.Errorf("left behind: %s %v", kind, left)
		}
	}
}

// detach removes from the project's networks what is attached to them once its containers are gone:
// an engine may keep the endpoint of a container that was killed while it started again, and then
// refuses to remove the network.
func (s *stack) detach(project string) {
	for _, network := range strings.Fields(must(s.t, docker("network", "ls", "--quiet", "--filter",
		"label=com.docker.compose.project="+project))) {
		for _, endpoint := range strings.Fields(must(s.t,
			docker("network", "inspect", "--format", "{{range .Containers}}{{.Name}} {{end}}", network))) {
			out, err := docker("network", "disconnect", "--force", network, endpoint).CombinedOutput()
			s.t.Logf("disconnect %s: %s (%v)", endpoint, out, err)
		}
	}
}

func (s *stack) command(args ...string) *exec.Cmd {
	c := docker(append([]string{"compose", "--ansi", "never", "--progress", "plain"}, args...)...)
	c.Dir, c.Env = s.dir, s.env
	return c
}

// compose runs docker compose, and says what it took.
func (s *stack) compose(args ...string) string {
	s.t.Helper()
	began := time.Now()
	out := must(s.t, s.command(args...))
	s.t.Logf("docker compose %s: %s", strings.Join(args, " "), time.Since(began).Round(100*time.Millisecond))
	return out
}

// rondo runs the command line as the header of compose.yaml says.
func (s *stack) rondo(args ...string) (string, error) {
	return output(s.command(append([]string{"run", "--rm", "--no-TTY", "rondo"}, args...)...))
}

// container is the one of a service, also when it has ended.
func (s *stack) container(service string) string {
	s.t.Helper()
	id := must(s.t, s.command("ps", "--all", "--quiet", service))
	if id == "" || strings.Contains(id, "\n") {
		s.t.Fatalf("%s has the containers %q", service, id)
	}
	return id
}

// state is what the tests read of `docker container inspect`.
type state struct {
	RestartCount int
	State        struct {
		Status   string
		Pid      int
		ExitCode int
		Health   *struct{ Status string }
	}
}

func (s *stack) inspect(container string) state {
	s.t.Helper()
	var list []state
	if err := json.Unmarshal([]byte(must(s.t, docker("container", "inspect", container))), &list); err != nil {
		s.t.Fatal(err)
	}
	return list[0]
}

// kill ends the first process of each service's container with SIGKILL, from outside of the engine:
// `docker kill` would be an operator's wish, after which nothing is started again. It waits until
// the engine has restarted them and all are healthy.
func (s *stack) kill(services ...string) {
	s.t.Helper()
	before := map[string]state{} // by container
	busybox := "busybox:" + find(s.t, filepath.Join(root, "Dockerfile"), `ARG BUSYBOX=(\S+)`) + "-musl"
	kill := docker("run", "--rm", "--pid=host", busybox, "kill", "-9")
	for _, service := range services {
		container := s.container(service)
		before[container] = s.inspect(container)
		kill.Args = append(kill.Args, fmt.Sprint(before[container].State.Pid))
	}
	must(s.t, kill)
	began := time.Now()
	for container, b := range before {
		s.eventually(5*time.Minute, container+" is healthy again", func() bool {
			now := s.inspect(container)
			return now.RestartCount > b.RestartCount && now.State.Health != nil && now.State.Health.Status == "healthy"
		})
	}
	s.t.Logf("killed %v; healthy again after %s", services, time.Since(began).Round(100*time.Millisecond))
}

func (s *stack) eventually(limit time.Duration, what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// summary is what the test reads of `rondo run show --json`.
type summary struct {
	State   string    `json:"state"`
	Events  int64     `json:"events"`
	Rewards []float64 `json:"rewards"`
}

func (s *stack) show(run string) summary {
	s.t.Helper()
	out, err := s.rondo("run", "show", run, "--json")
	if err != nil {
		s.t.Fatal(err)
	}
	var r summary
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return r
}
