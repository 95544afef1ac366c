package helm

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/program"
)

// authority makes the keys of everybody, and a certificate for this machine.
func authority(t *testing.T, keys string) *auth.Authority {
	t.Helper()
	a, err := auth.Init(keys)
	if err == nil {
		err = auth.EnsureTLS(keys, []string{"127.0.0.1"}, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range auth.Everybody() {
		if _, err := a.Ensure(auth.User{Name: name, Services: []string{name}}); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"s3.access", "s3.secret"} { // as `rondo auth store` writes them
			if err := os.WriteFile(filepath.Join(filepath.Dir(a.Creds(name)), file),
				[]byte(name+" "+file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return a
}

// lay writes the Secrets as folders, as pods see them.
func lay(t *testing.T, secrets map[string]map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, data := range secrets {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
		for key, value := range data {
			if err := os.WriteFile(filepath.Join(folder, name, key), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return folder
}

// locked starts a server that reads what the Secret of the NATS servers holds.
func locked(t *testing.T, secret string) *server.Server {
	t.Helper()
	text := fmt.Sprintf("include %q\ntls {cert_file: %q, key_file: %q}\n",
		"../"+filepath.Base(secret)+"/auth.conf", filepath.Join(secret, "tls.crt"), filepath.Join(secret, "tls.key"))
	conf := filepath.Join(filepath.Dir(secret), "config", "nats.conf") // beside it, as in the pod
	if err := os.Mkdir(filepath.Dir(conf), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	options.JetStream, options.StoreDir, options.Host, options.Port = true, t.TempDir(), "127.0.0.1", server.RANDOM_PORT
	options.HTTPHost, options.HTTPPort, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	options.MaxPayload, options.JetStreamMaxStore, options.JetStreamMaxMemory = 8<<20, 1<<40, 64<<20
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not get ready")
	}
	return s
}

// TestReleaseTrains: every container of the release, as a process with its rendered
// command, its rendered variables and the keys of its Secrets, gets ready at a locked
// server, and together they train the built-in policy. When they are asked to end they do
// so in the time that their pods have.
func TestReleaseTrains(t *testing.T) {
	program.NeedSandbox(t)
	rondo := program.Binary(t)
	keys := filepath.Join(t.TempDir(), "auth")
	authority(t, keys)
	mounted := lay(t, secretsOf(t, keys))
	log := locked(t, filepath.Join(mounted, "rondo-nats"))
	store := t.TempDir()
	chart := deployments(render(t, "everything"))
	free := natstest.FreePorts(t, 3+len(chart))
	ports := map[string]string{}
	for i, port := range []string{"8700", "8780", "8790"} {
		ports[port] = strconv.Itoa(free[i])
	}
	free = free[3:]
	address := func(text string) string {
		for port, free := range ports {
			text = strings.NewReplacer("0.0.0.0:"+port, "127.0.0.1:"+free, release+"-policy:"+port,
				"127.0.0.1:"+free).Replace(text)
		}
		return text
	}
	environment := func(c container, user string) []string {
		env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "RONDO_DIR=" + t.TempDir()}
		for name, value := range c.variables() {
			switch name {
			case "RONDO_NATS":
				value = log.ClientURL()
			case "RONDO_NATS_MONITOR":
				value = "http://" + log.MonitorAddr().String()
			case "RONDO_STORE":
				value = store
			case "RONDO_GATEWAY_KEY":
				value = "a-key-of-the-settings"
			case "OTEL_EXPORTER_OTLP_ENDPOINT":
				value = ""
			}
			if value != "" {
				env = append(env, name+"="+strings.Replace(value,
					"/keys/", filepath.Join(mounted, "rondo-keys-"+user)+"/", 1))
			}
		}
		return env
	}
	delete(chart, "toolrunner-big-vm") // its pool has no rollouts
	admin := environment(chart["admin"].Spec.Template.Spec.Containers[0], "admin")
	delete(chart, "admin")
	processes, health := map[string]*program.Process{}, map[string]string{}
	for name, d := range chart {
		c := d.Spec.Template.Spec.Containers[0]
		args := slices.Clone(c.Args)
		for i := range args {
			args[i] = address(args[i])
			if args[i] == "--replicas" {
				args[i+1] = "1"
			}
		}
		health[name] = fmt.Sprint("127.0.0.1:", free[len(processes)])
		command := exec.Command(rondo, args...)
		command.Env = append(environment(c, c.Name), "RONDO_METRICS_LISTEN="+health[name])
		processes[name] = program.Start(t, command)
	}
	for name, at := range health {
		program.Eventually(t, func() error {
			for other, p := range processes { // one that is gone keeps the others waiting
				select {
				case <-p.Done:
					t.Fatalf("%s has ended:\n%s", other, p)
				default:
				}
			}
			answer, err := http.Get("http://" + at +
				chart[name].Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", name, text)
			}
			return nil
		})
	}
	run := func(args ...string) {
		command := exec.Command(rondo, args...)
		command.Env = admin
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("rondo %v: %v\n%s", args, err, out)
		}
	}
	run("demo", "--steps", "1", "--groups-per-batch", "2", "--group-size", "4", "--quiet", "--json")
	run("audit", "demo-1") // it fails where it finds a fault
	for _, name := range slices.Sorted(maps.Keys(processes)) {
		_ = processes[name].Cmd.Process.Signal(syscall.SIGTERM)
	}
	grace := time.After(time.Duration(chart["intake"].Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second)
	for name, p := range processes {
		select {
		case <-p.Done:
			if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("%s ended with %d:\n%s", name, code, p)
			}
		case <-grace:
			t.Fatalf("%s works on after its pod would be killed", name)
		}
	}
}
