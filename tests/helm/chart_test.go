// Package helm holds the Helm chart to compose.yaml, to the program, and to Kubernetes.
package helm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/tests/program"
)

const (
	root    = "../.."
	folder  = root + "/deploy/helm/rondo"
	release = "rondo"
)

// keda is the module with KEDA's definitions of its kinds.
const keda = "github.com/kedacore/keda/v2@v2.20.2"

// object is what the tests read of what the chart makes.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name        string
		Labels      map[string]string
		Annotations map[string]string
	}
	Spec struct {
		Replicas *int
		Selector json.RawMessage
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		policySpec
		Ports           []struct{ Port int }
		ScaleTargetRef  struct{ Name string }
		MinReplicaCount *int
		MaxReplicaCount int
		Triggers        []struct {
			Type     string
			Metadata map[string]string
		}
		Groups json.RawMessage
	}
	Data map[string]string
	raw  []byte
}

type pod struct {
	AutomountServiceAccountToken  *bool
	HostUsers                     *bool
	HostNetwork, HostPID, HostIPC bool
	ShareProcessNamespace         bool
	TerminationGracePeriodSeconds int
	RuntimeClassName              string
	SecurityContext               security
	NodeSelector                  map[string]string
	Containers                    []container
	Volumes                       []volume
}

type security struct {
	RunAsNonRoot                    *bool
	RunAsUser                       int
	Privileged                      bool
	AllowPrivilegeEscalation        *bool
	ReadOnlyRootFilesystem          *bool
	ProcMount                       string
	Capabilities                    struct{ Add, Drop []string }
	SeccompProfile, AppArmorProfile struct{ Type string }
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		ValueFrom   *struct {
			SecretKeyRef *struct {
				Name, Key string
				Optional  bool
			}
		}
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	SecurityContext                             security
	LivenessProbe, ReadinessProbe, StartupProbe *probe
	Resources                                   struct{ Limits, Requests map[string]string }
	VolumeMounts                                []struct {
		Name, MountPath string
		ReadOnly        bool
	}
}

type probe struct {
	HTTPGet *struct {
		Path string
		Port any
	}
	TCPSocket      *struct{ Port any }
	TimeoutSeconds int
}

type volume struct {
	Name      string
	EmptyDir  *struct{ SizeLimit string }
	Projected *struct {
		Sources []struct{ Secret struct{ Name string } }
	}
}

// variables are those of a container that have a value.
func (c container) variables() map[string]string {
	set := map[string]string{}
	for _, e := range c.Env {
		set[e.Name] = e.Value
	}
	return set
}

// work is a folder that goes when the tests have ended.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "rondo-helm-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(work)
	os.Exit(code)
}

// checker is the program of tools/helm, and the folder of KEDA's definitions.
var checker = sync.OnceValues(func() ([2]string, error) {
	binary, err := storagetest.Tool("helm")
	if err != nil {
		return [2]string{}, err
	}
	download := exec.Command("go", "mod", "download", "-json", keda)
	download.Dir = work // outside of this module, whose go.sum does not have it
	out, err := download.Output()
	var module struct{ Dir, Error string }
	if err = errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		return [2]string{}, fmt.Errorf("download %s: %w: %s", keda, err, module.Error)
	}
	return [2]string{binary, filepath.Join(module.Dir, "config", "crd", "bases")}, nil
})

// try renders the chart with a file of testdata, or with values that are written out.
func try(t *testing.T, values string) ([]object, error) {
	t.Helper()
	tool, err := checker()
	if err != nil {
		program.Missing(t, "%v", err)
	}
	file := filepath.Join("testdata", values+".yaml")
	if strings.ContainsAny(values, ":\n") {
		file = filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(tool[0], "-release", release, "-namespace", "plane", "-crds", tool[1],
		"-values", file, folder)
	var remarks bytes.Buffer
	command.Stderr = &remarks
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, remarks.String())
	}
	var texts []json.RawMessage
	if err := json.Unmarshal(out, &texts); err != nil {
		t.Fatal(err)
	}
	var objects []object
	for _, text := range texts {
		o := object{raw: text}
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// rendered are the objects by their values: several tests look at the same ones.
var rendered = map[string][]object{}

func render(t *testing.T, values string) []object {
	t.Helper()
	if rendered[values] == nil {
		objects, err := try(t, values)
		if err != nil {
			t.Fatal(err)
		}
		rendered[values] = objects
	}
	return rendered[values]
}

// of finds the objects of a kind.
func of(objects []object, kind string) []object {
	return slices.DeleteFunc(slices.Clone(objects), func(o object) bool { return o.Kind != kind })
}

// deployments are the Deployments by their names without the release's.
func deployments(objects []object) map[string]object {
	found := map[string]object{}
	for _, o := range of(objects, "Deployment") {
		found[strings.TrimPrefix(o.Metadata.Name, release+"-")] = o
	}
	return found
}

// chartValues are those of values.yaml.
func chartValues(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(folder + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestChartIsSound: lint has nothing to warn of, every object has the fields of its kind alone,
// and names are given once.
func TestChartIsSound(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("values %v: %v", files, err)
	}
	for _, file := range files {
		seen := map[string]bool{}
		for _, o := range render(t, strings.TrimSuffix(filepath.Base(file), ".yaml")) {
			if name := o.Kind + " " + o.Metadata.Name; seen[name] {
				t.Errorf("%s: two are called %s", file, name)
			} else {
				seen[name] = true
			}
		}
		if len(seen) < 30 {
			t.Errorf("%s makes %d objects", file, len(seen))
		}
	}
}

// TestCheckerRefuses: the test above fails where an object has what its kind does not have, and a
// chart without its values says which.
func TestCheckerRefuses(t *testing.T) {
	bucket := "store: {bucket: rondo}\n"
	for values, want := range map[string]string{
		"services: {}\n":                                            "name the bucket",
		bucket + "nats: {enabled: false}\n":                         "log.url",
		bucket + "autoscaling: {enabled: true}\n":                   "name a Prometheus, or runs",
		bucket + "autoscaling: {enabled: true, runs: [first]}\n":    "autoscaling.account",
		bucket + "defaults: {resources: {limit: {memory: 1Gi}}}\n":  `unknown field "spec.template.spec.containers[0].resources.limit"`,
		bucket + "defaults: {resources: {limits: {memory: one}}}\n": "quantities must match",
		bucket + "autoscaling: {enabled: true, prometheus: 'http://p', " +
			"pollingInterval: {every: 15}}\n": "spec.pollingInterval",
	} {
		if _, err := try(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %.600v, want %q", values, err, want)
		}
	}
}
