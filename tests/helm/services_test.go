package helm

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/composefile"
	"github.com/rondo-rl/rondo/tests/program"
)

// profiles are all of compose.yaml.
const profiles = "demo,gateway,gpu,cli,observability"

// others are the containers of compose.yaml that have no Deployment of the chart, and why.
var others = map[string]string{
	"keys":       "deploy/helm/secrets, as keys belong to the operator's machine",
	"access":     "rondo auth store, the same",
	"nats":       "NATS's own chart",
	"s3":         "a bucket that is there",
	"demo":       "kubectl exec deploy/rondo-admin -- rondo demo",
	"rondo":      "the Deployment admin",
	"vllm":       "an inference server that is there",
	"prometheus": "PodMonitor and PrometheusRule",
	"grafana":    "the ConfigMap of the dashboard",
}

// deploymentOf is the name of a service's Deployment: the tool runner's is that of the pool.
func deploymentOf(service string) string {
	if service == "toolrunner" {
		return "toolrunner-pool-shell"
	}
	return service
}

// TestEachServiceHasADeployment: the chart has what `rondo service` has, and what compose.yaml has.
func TestEachServiceHasADeployment(t *testing.T) {
	help, err := exec.Command(program.Binary(t), "service", "--help").Output()
	list := regexp.MustCompile(`: \[([a-z ]+)\]`).FindSubmatch(help)
	if err != nil || list == nil {
		t.Fatalf("%v\n%s", err, help)
	}
	services := strings.Fields(string(list[1]))
	var want []string
	for _, s := range services {
		want = append(want, deploymentOf(s))
	}
	want = append(want, "admin", "toolrunner-big-vm")
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(deployments(render(t, "everything")))); !slices.Equal(got, want) {
		t.Errorf("the chart has\n%v\n`rondo service` has\n%v", got, want)
	}
	for name := range composefile.Load(t, profiles) {
		if others[name] == "" && !slices.Contains(services, name) {
			t.Errorf("compose.yaml has %s, and the chart has not: give it a row in values.yaml, or say in this test why it needs none", name)
		}
	}
}

// TestServicesAreThoseOfCompose: the same commands, ports, variables,
// images, memory and time to end.
func TestServicesAreThoseOfCompose(t *testing.T) {
	compose, chart := composefile.Load(t, profiles), deployments(render(t, "everything"))
	here := strings.NewReplacer("http://"+release+"-policy:", "http://policy:")
	for name, s := range compose {
		if others[name] != "" {
			continue
		}
		d := chart[deploymentOf(name)].Spec.Template.Spec
		if len(d.Containers) != 1 {
			t.Fatalf("%s has the containers %+v", name, d.Containers)
		}
		c := d.Containers[0]
		args := slices.Clone(c.Args)
		if i := slices.IndexFunc(args, func(a string) bool { return a == "--replicas" || a == "--allow-host" }); i > 0 {
			args = slices.Delete(args, i, i+2)
		}
		if got := here.Replace(strings.Join(args, " ")); got != strings.Join(s.Command, " ") {
			t.Errorf("%s runs %q; in compose.yaml %q", name, got, s.Command)
		}
		image, _, _ := strings.Cut(c.Image, ":")
		if composed, _, _ := strings.Cut(s.Image, ":"); image != composed {
			t.Errorf("%s is the image %s; in compose.yaml %s", name, image, composed)
		}
		got := c.variables()
		for variable, value := range s.Environment {
			given, ok := got[variable]
			if !ok {
				t.Errorf("%s has no %s", name, variable)
			}
			if strings.HasSuffix(variable, "_SLOTS") || strings.HasSuffix(variable, "_FILE") ||
				variable == "RONDO_NATS_CREDS" || variable == "RONDO_NATS_CA" || variable == "RONDO_POOL" {
				if value == nil || given != *value {
					t.Errorf("%s has %s=%s; in compose.yaml %v", name, variable, given, *value)
				}
			}
		}
		for variable := range got {
			// A volume of Kubernetes is root's, so that the dashboard makes a
			// folder of its own in it.
			if _, ok := s.Environment[variable]; !ok && variable != "RONDO_DIR" {
				t.Errorf("%s has %s, which compose.yaml has not", name, variable)
			}
		}
		for _, port := range s.Ports {
			if !slices.ContainsFunc(c.Ports, func(p struct {
				Name          string
				ContainerPort int
			}) bool {
				return p.ContainerPort == port.Target
			}) {
				t.Errorf("%s has no port %d", name, port.Target)
			}
		}
		if limit, err := strconv.Atoi(s.MemLimit); err != nil ||
			c.Resources.Limits["memory"] != strconv.Itoa(limit>>30)+"Gi" {
			t.Errorf("%s has %s of memory; in compose.yaml %s bytes", name, c.Resources.Limits["memory"], s.MemLimit)
		}
		if grace := strconv.Itoa(d.TerminationGracePeriodSeconds) + "s"; grace != s.StopGracePeriod {
			t.Errorf("%s has %s to end; in compose.yaml %s", name, grace, s.StopGracePeriod)
		}
	}
}

// TestVariablesExist: a variable is a flag of the program, or one that compose.yaml has, too.
func TestVariablesExist(t *testing.T) {
	help, err := exec.Command(program.Binary(t), "service", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, flag := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllSubmatch(help, -1) {
		known["RONDO_"+strings.ToUpper(strings.ReplaceAll(string(flag[1]), "-", "_"))] = true
	}
	for _, s := range composefile.Load(t, profiles) {
		for variable := range s.Environment {
			known[variable] = true
		}
	}
	for name, d := range deployments(render(t, "everything")) {
		for variable := range d.Spec.Template.Spec.Containers[0].variables() {
			if !known[variable] {
				t.Errorf("%s has %s, which nothing reads", name, variable)
			}
		}
	}
}

// TestProbes: readiness is whether log and store answer. No probe restarts a process because of an
// outage, which ends without a restart.
func TestProbes(t *testing.T) {
	dockerfile, err := os.ReadFile(root + "/Dockerfile")
	if err != nil || !strings.Contains(string(dockerfile), "RONDO_METRICS_LISTEN=:9100") {
		t.Fatalf("the images serve metrics elsewhere: %v", err)
	}
	for name, d := range deployments(render(t, "everything")) {
		c := d.Spec.Template.Spec.Containers[0]
		if name == "admin" {
			continue
		}
		if c.Ports[0].Name != "metrics" || c.Ports[0].ContainerPort != 9100 {
			t.Errorf("%s: ports %+v", name, c.Ports)
		}
		// It waits up to 5 s for each of log and store.
		if r := c.ReadinessProbe; r == nil || r.HTTPGet == nil || r.HTTPGet.Path != "/readyz" ||
			r.HTTPGet.Port != "metrics" || r.TimeoutSeconds <= 10 {
			t.Errorf("%s: readiness %+v", name, c.ReadinessProbe)
		}
		for _, p := range []*probe{c.LivenessProbe, c.StartupProbe} {
			if p == nil || p.TCPSocket == nil || p.TCPSocket.Port != "metrics" || p.HTTPGet != nil {
				t.Errorf("%s is restarted by %+v", name, p)
			}
		}
	}
}

// TestSettingsReachTheProgram: pools, names of hosts and the number of servers are
// arguments and variables.
func TestSettingsReachTheProgram(t *testing.T) {
	chart := deployments(render(t, "everything"))
	pool := chart["toolrunner-big-vm"].Spec.Template.Spec
	if got := pool.Containers[0].variables(); got["RONDO_POOL"] != "big_VM" || got["RONDO_TOOL_SLOTS"] != "2" ||
		got["RONDO_LABEL"] != "big,gpu" {
		t.Errorf("the second pool is told %v", got)
	}
	if pool.RuntimeClassName != "kata" || pool.NodeSelector["sandboxes"] != "yes" || pool.HostUsers != nil ||
		pool.Containers[0].SecurityContext.ProcMount != "Default" {
		t.Errorf("the second pool is %+v", pool)
	}
	if args := chart["dashboard"].Spec.Template.Spec.Containers[0].Args; !slices.Equal(args[len(args)-2:],
		[]string{"--allow-host", "rondo.example.org"}) {
		t.Errorf("the dashboard refuses its own name: %v", args)
	}
	if args := chart["intake"].Spec.Template.Spec.Containers[0].Args; !slices.Equal(args[len(args)-2:],
		[]string{"--replicas", "3"}) {
		t.Errorf("the intake makes streams with %v", args)
	}
	if got := chart["intake"].Spec.Template.Spec.Containers[0].variables()["RONDO_STORE"]; got != "s3://rondo/plane?endpoint=https://s3.example.org" {
		t.Errorf("the store is %s", got)
	}
	plain := deployments(render(t, "plain"))["intake"].Spec.Template.Spec.Containers[0].variables()
	if got := plain["RONDO_STORE"]; got != "s3://rondo?endpoint=https://s3.example.org&region=eu-west-1" {
		t.Errorf("the store is %s", got)
	}
	if plain["RONDO_NATS"] != "nats://rondo-nats:4222" || plain["RONDO_NATS_MONITOR"] != "http://rondo-nats:8222" {
		t.Errorf("the log is %s, its monitoring port %s", plain["RONDO_NATS"], plain["RONDO_NATS_MONITOR"])
	}
}
