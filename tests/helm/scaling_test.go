package helm

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

// scaled are the services that KEDA scales.
var scaled = []string{topology.Generator, topology.Scorer, topology.ToolRunner}

// TestScalingByConsumers: without a Prometheus a service is scaled by each of its consumers
// in each named run, and always has a replica, because it is the service itself that makes
// the consumers of a new run.
func TestScalingByConsumers(t *testing.T) {
	objects := render(t, "external")
	var names []string
	for _, o := range of(objects, "ScaledObject") {
		target := strings.TrimPrefix(o.Spec.ScaleTargetRef.Name, release+"-")
		service, _, pool := strings.Cut(target, "-")
		names = append(names, service)
		if deployments(objects)[target].Spec.Replicas != nil {
			t.Errorf("%s: the chart and KEDA both say how many there are", target)
		}
		if o.Spec.MinReplicaCount == nil || *o.Spec.MinReplicaCount < 1 || o.Spec.MaxReplicaCount < 2 {
			t.Errorf("%s is scaled from %v to %d", target, o.Spec.MinReplicaCount, o.Spec.MaxReplicaCount)
		}
		var want, got []string
		for _, run := range []string{"first", "second"} {
			for _, c := range topology.ConsumersOf(service) {
				c = c.For(run, "pool-shell")
				want = append(want, c.Stream+" "+c.Name)
			}
		}
		for _, trigger := range o.Spec.Triggers {
			got = append(got, trigger.Metadata["stream"]+" "+trigger.Metadata["consumer"])
			if trigger.Type != "nats-jetstream" ||
				trigger.Metadata["natsServerMonitoringEndpoint"] != "nats.example.org:8222" ||
				trigger.Metadata["lagThreshold"] == "0" {
				t.Errorf("%s: %+v", target, trigger)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || pool != (service == topology.ToolRunner) {
			t.Errorf("%s is scaled by\n%q, has the consumers\n%q", target, got, want)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, scaled) {
		t.Errorf("scaled are %v", names)
	}
	for _, o := range of(render(t, "store: {bucket: b}\nautoscaling: {enabled: true, runs: [first], account: AAA}\n"),
		"ScaledObject") {
		// KEDA puts the name of the leading server before it, so it is the Service that has
		// names for single servers.
		at := o.Spec.Triggers[0].Metadata["natsServerMonitoringEndpoint"]
		if at != "rondo-nats-headless.plane.svc:8222" {
			t.Errorf("%s: KEDA asks %s", o.Metadata.Name, at)
		}
	}
}

// TestAccountOfTheTriggers: a locked server answers the question that KEDA asks with the trigger's
// account: by its key, with streams and consumers.
func TestAccountOfTheTriggers(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "auth")
	a, err := auth.Init(keys)
	if err == nil {
		_, err = a.Ensure(auth.User{Name: topology.Admin, Services: []string{topology.Admin}})
	}
	if err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(filepath.Join(keys, auth.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	options.JetStream, options.StoreDir, options.Host, options.Port = true, t.TempDir(), "127.0.0.1", server.RANDOM_PORT
	options.HTTPHost, options.HTTPPort, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	conn, err := nats.Connect(s.ClientURL(), nats.UserCredentials(a.Creds(topology.Admin)),
		nats.CustomInboxPrefix(topology.ServiceInbox(topology.Admin)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: events.RunStream("first"),
		Subjects: []string{events.SubjectPrefix + "first.>"}})
	if err == nil {
		_, err = stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "scorer-v1",
			AckPolicy: jetstream.AckExplicitPolicy})
	}
	if err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile(filepath.Join(keys, auth.ConfigFile))
	account := regexp.MustCompile(`# RONDO\n *(\w+):`).FindSubmatch(conf) // as values.yaml says where it is
	if err != nil || account == nil {
		t.Fatalf("no account: %v\n%s", err, conf)
	}
	trigger := of(render(t, "store: {bucket: b}\nautoscaling: {enabled: true, runs: [first], account: "+
		string(account[1])+"}\n"), "ScaledObject")[0].Spec.Triggers[0].Metadata
	answer, err := http.Get("http://" + s.MonitorAddr().String() + "/jsz?acc=" + trigger["accountID"] +
		"&consumers=true&config=true")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var told struct {
		Accounts []struct {
			ID      string
			Streams []struct {
				Name      string
				Consumers []struct{ Name string } `json:"consumer_detail"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&told); err != nil {
		t.Fatal(err)
	}
	if len(told.Accounts) != 1 || told.Accounts[0].ID != trigger["accountID"] || len(told.Accounts[0].Streams) != 1 ||
		told.Accounts[0].Streams[0].Name != trigger["stream"] ||
		len(told.Accounts[0].Streams[0].Consumers) != 1 {
		t.Errorf("KEDA asks for %v and hears %+v", trigger, told)
	}
}

// TestScalingByMetrics: with a Prometheus a service may have no replica while no rollout is in
// flight; its queries are about metrics that there are.
func TestScalingByMetrics(t *testing.T) {
	documented, err := os.ReadFile(root + "/docs/guide/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := of(render(t, "everything"), "ScaledObject")
	if len(objects) != len(scaled)+1 {
		t.Errorf("%d are scaled", len(objects))
	}
	for _, o := range objects {
		if *o.Spec.MinReplicaCount != 0 || len(o.Spec.Triggers) != 2 {
			t.Errorf("%s: %+v", o.Metadata.Name, o.Spec)
		}
		for _, trigger := range o.Spec.Triggers {
			query := trigger.Metadata["query"]
			for _, metric := range regexp.MustCompile(`rondo_\w+`).FindAllString(query, -1) {
				if !strings.Contains(string(documented), "| `"+metric+"` |") {
					t.Errorf("%s asks for %s", o.Metadata.Name, metric)
				}
			}
			if trigger.Type != "prometheus" || trigger.Metadata["threshold"] == "0" ||
				!strings.Contains(query, `namespace="plane"`) {
				t.Errorf("%s: %+v", o.Metadata.Name, trigger)
			}
			match := regexp.MustCompile(`pod=~"([^"]+)"`).FindStringSubmatch(query)
			target := o.Spec.ScaleTargetRef.Name
			if strings.Contains(query, "rollouts_in_flight") {
				target = release + "-querysampler" // it counts them, however few there are of the others
			}
			pods := regexp.MustCompile("^(?:" + match[1] + ")$")
			if !pods.MatchString(target+"-5d4f7c9b8-x2x7p") || pods.MatchString(target+"-other-5d4f7c9b8-x2x7p") {
				t.Errorf("%s counts what pods %s say", o.Metadata.Name, match[1])
			}
		}
	}
}

// TestMonitoringIsThatOfCompose: the same rules and the same dashboard.
func TestMonitoringIsThatOfCompose(t *testing.T) {
	objects := render(t, "everything")
	text, err := os.ReadFile(root + "/deploy/helm/rondo/files/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules, got struct{ Groups any }
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(rules.Groups)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &rules.Groups); err != nil {
		t.Fatal(err)
	}
	rule := of(objects, "PrometheusRule")[0]
	if err := json.Unmarshal(rule.Spec.Groups, &got.Groups); err != nil || !reflect.DeepEqual(got, rules) ||
		rule.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("the rules differ: %v\n%s\n%s", err, rule.Spec.Groups, want)
	}
	dashboard, err := os.ReadFile(root + "/deploy/helm/rondo/files/rondo.json")
	if err != nil || of(objects, "ConfigMap")[0].Data["rondo.json"] != string(dashboard) {
		t.Errorf("the dashboard differs: %v", err)
	}
}

// TestServersAreThoseOfCompose: NATS's chart is told what deploy/nats.conf says,
// and runs the same version.
func TestServersAreThoseOfCompose(t *testing.T) {
	conf, err := os.ReadFile(root + "/deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	compose, err := os.ReadFile(root + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string {
		var value any = chartValues(t)["nats"]
		for key := range strings.SplitSeq(path, ".") {
			value = value.(map[string]any)[key]
		}
		return strings.Trim(value.(string), "<> ")
	}
	for setting, path := range map[string]string{
		"max_payload": "config.merge.max_payload", "sync_interval": "config.jetstream.merge.sync_interval",
		"max_file_store":   "config.jetstream.fileStore.maxSize",
		"max_memory_store": "config.jetstream.memoryStore.maxSize",
	} {
		want := regexp.MustCompile(`(?m)^ *` + setting + `: (\S+)$`).FindSubmatch(conf)
		if want == nil || at(path) != string(want[1]) {
			t.Errorf("%s is %s; in deploy/nats.conf %q", setting, at(path), want)
		}
	}
	if tag := at("container.image.tag"); !strings.Contains(string(compose), "image: nats:"+tag+"\n") {
		t.Errorf("the servers are nats:%s", tag)
	}
}
