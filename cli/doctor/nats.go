package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
)

// How far a server's clock may be from this one's: deadlines and leases are
// compared across machines.
const (
	someSkew = 2 * time.Second
	muchSkew = 30 * time.Second
)

// leastPayload is what a message must be allowed to hold: a fact with its body, and its headers.
const leastPayload = 1 << 20

// connect makes a connection that tells refused what the user may not do: NATS drops that
// without a word to who asked.
func connect(url string, options []nats.Option, refused context.CancelCauseFunc) (*nats.Conn, error) {
	return nats.Connect(url, append(options, nats.Name("rondo doctor"), nats.Timeout(5*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				refused(err)
			}
		}))...)
}

// tryNATS connects, and makes and deletes a stream as large as a run's.
func tryNATS(ctx context.Context, url string, access app.NATSAccess, now func() time.Time) []finding {
	options, err := access.Options()
	if err != nil {
		return []finding{trouble("nats", err, "")}
	}
	ctx, refused := context.WithCancelCause(ctx)
	defer refused(nil)
	nc, err := connect(url, options, refused)
	if err != nil {
		return []finding{trouble("nats", fmt.Errorf("connect to %s: %w", app.Redacted(url),
			app.WithoutSecrets(url, err)), connectAdvice(err))}
	}
	defer nc.Close()
	findings := []finding{ok("nats", "%s answers, version %s", app.Redacted(nc.ConnectedUrl()),
		nc.ConnectedServerVersion())}
	if most := nc.MaxPayload(); most < leastPayload {
		findings = append(findings, trouble("nats", fmt.Errorf("messages may have %d bytes", most),
			"set max_payload: 8MB, as deploy/nats.conf does"))
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return append(findings, trouble("jetstream", err, ""))
	}
	name := "rondo-doctor-" + rand.Text()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, MaxBytes: topology.Streams[0].MaxBytes,
	})
	if errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
		return append(findings, readCatalogue(context.WithoutCancel(ctx), js)...)
	}
	if err != nil {
		return append(findings, trouble("jetstream", fmt.Errorf("make a stream of %s, which each run needs: %w",
			byteCount(uint64(topology.Streams[0].MaxBytes)), err), streamAdvice(err)))
	}
	defer js.DeleteStream(context.WithoutCancel(ctx), name)
	began := now()
	if _, err := js.Publish(ctx, name, []byte("doctor")); err != nil {
		return append(findings, trouble("jetstream", fmt.Errorf("append: %w", err), streamAdvice(err)))
	}
	took := now().Sub(began)
	appends := ok("jetstream", "a run's stream can be made; an append took %s", took.Round(10*time.Microsecond))
	if took > eventlog.SlowAppend {
		appends.Level, appends.Do = levelWarning,
			"it is not full: see what else uses the disk, the processors and the network of the server"
	}
	findings = append(findings, appends)
	m, err := s.GetMsg(ctx, 1)
	if err != nil {
		return append(findings, trouble("jetstream", fmt.Errorf("read: %w", err), ""))
	}
	return append(findings, compareClocks(began, m.Time, took))
}

// readCatalogue is what a user who may make no streams can try: services and
// outsiders are such users.
func readCatalogue(ctx context.Context, js jetstream.JetStream) []finding {
	ctx, cancel := context.WithTimeout(ctx, health.Patience)
	defer cancel()
	_, err := js.Stream(ctx, events.CatalogueStream)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return []finding{trouble("jetstream", fmt.Errorf("look at the catalogue of runs: %w", err), streamAdvice(err))}
	}
	return []finding{ok("jetstream",
		"it answers; whether it takes a new run's stream only the intake or the operator can try, with their credentials")}
}

// tryStreams asks a server elsewhere which streams refuse writes.
func tryStreams(ctx context.Context, monitor string) []finding {
	if monitor == "" {
		return []finding{{"streams", levelWarning,
			"not checked: only the NATS server's monitoring port lists the streams that refuse writes",
			"name it by --nats-monitor, for example http://10.0.0.1:8222 (http: in the server's configuration)"}}
	}
	refusing, err := health.AskMonitor(ctx, monitor)
	if err != nil {
		return []finding{trouble("streams", err, "see that --nats-monitor names the NATS server's monitoring port")}
	}
	return outageFindings("streams", health.Refused(refusing, false), "no stream refuses writes")
}

// tryPlane asks the plane in the directory how it is.
func tryPlane(ctx context.Context, address string) []finding {
	outages, err := plane.AskPlane(ctx, address)
	if err != nil {
		return []finding{trouble("plane", err, "see whether `rondo up` still runs there, and what its log says")}
	}
	return outageFindings("plane", outages,
		"log, store and disks of the plane that runs here answer, and its streams take writes")
}

func outageFindings(check string, outages []health.Outage, well string) (findings []finding) {
	for _, o := range outages {
		findings = append(findings, finding{check, levelTrouble,
			strings.TrimSpace(string(o.Kind)+" "+o.Of) + ": " + app.Clean(o.Reason), o.Do})
	}
	if findings == nil {
		return []finding{ok(check, "%s", well)}
	}
	return findings
}

// compareClocks compares when a message was sent by this clock and stored by the server's.
func compareClocks(sent, stored time.Time, took time.Duration) finding {
	skew := stored.Sub(sent)
	if skew > 0 {
		skew = max(0, skew-took)
	}
	if skew < 0 {
		skew = -skew
	}
	f := ok("clock", "within %s of the server's", max(skew, took).Round(time.Millisecond))
	if skew > someSkew {
		f.Level, f.Do = levelWarning, "set both clocks by NTP: deadlines of rollouts are compared across machines"
		f.Found = fmt.Sprintf("%s off the server's", skew.Round(time.Millisecond))
	}
	if skew > muchSkew {
		f.Level = levelTrouble
	}
	return f
}

func connectAdvice(err error) string {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return "give --nats-creds a file that `rondo auth` has made for you, or the server's user and password in the URL, nats://user:password@host:4222, best by RONDO_NATS in the environment"
	}
	return "see that nats-server runs and listens there (deploy/nats.conf has its settings); without --nats each directory has a server of its own"
}

// noStorage are the server's codes for a stream that it has no storage for: in the account, on
// the server, in the cluster.
var noStorage = []jetstream.ErrorCode{10002, 10005, 10023, 10047}

func streamAdvice(err error) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return "start the server with JetStream, as deploy/nats.conf does, or by the option -js"
	case errors.As(err, &api) && slices.Contains(noStorage, api.ErrorCode):
		return "raise max_file_store of the server: every open run reserves its stream's limit, whatever it uses; `rondo run delete` gives archived runs' back"
	case errors.Is(err, context.DeadlineExceeded):
		return "the server does not answer JetStream requests: in a cluster, see that a majority of its servers runs; with permissions, that this user may use $JS.API.>"
	}
	return ""
}
