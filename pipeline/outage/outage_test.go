package outage_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// TestOutageOf is the line between the plane's faults and those of models, tasks,
// sandboxes and inference servers.
func TestOutageOf(t *testing.T) {
	odd := errors.New("odd")
	down := storage.Unavailable(t.Context(), odd)
	full := storage.Unavailable(t.Context(), syscall.ENOSPC)
	host := func(errno syscall.Errno) error {
		return fmt.Errorf("make sandbox: %w", &os.PathError{Op: "mkdir", Path: "/x", Err: errno})
	}
	server := func(err error) error { return &inference.Failure{Class: events.ClassEndpoint, Err: err} }
	tests := func(class string, err error) error { return &verifier.Error{Class: class, Err: err} }
	js := func(code jetstream.ErrorCode, status int, text string) error {
		return fmt.Errorf("append: %w", &jetstream.APIError{Code: status, ErrorCode: code, Description: text})
	}
	for name, c := range map[string]struct {
		err  error
		want health.Kind
	}{
		"nothing":  {nil, ""},
		"anything": {odd, ""},
		"a time":   {context.DeadlineExceeded, ""},
		"a stop":   {context.Canceled, ""},

		"store":                {fmt.Errorf("trajectory: %w", down), health.StoreUnreachable},
		"store on a full disk": {full, health.StoreUnreachable},
		"store below a sandbox": {fault.Mark(fmt.Errorf("workspace: %w: %w", sandbox.ErrSource, full)),
			health.StoreUnreachable},
		"store below tests": {tests(verifier.ClassSandbox, fmt.Errorf("%w: %w", sandbox.ErrSource, down)),
			health.StoreUnreachable},
		"object that is lost":    {storage.ErrNotFound, ""},
		"object that is damaged": {storage.ErrCorrupt, ""},
		"object that is lost below tests": {tests(verifier.ClassSandbox,
			fmt.Errorf("%w: %w", sandbox.ErrSource, storage.ErrNotFound)), ""},

		"stream at its limit": {fmt.Errorf("append: %w", eventlog.ErrStreamFull), health.LogRefusesWrites},
		"maximum bytes":       {js(10077, 503, "maximum bytes exceeded"), health.LogRefusesWrites},
		"insufficient":        {js(10023, 503, "insufficient resources"), health.LogRefusesWrites},
		"no storage": {js(10047, 500, "insufficient storage resources available"),
			health.LogRefusesWrites},
		"no memory": {js(10028, 500, "insufficient memory resources available"),
			health.LogRefusesWrites},
		"account at its limit": {js(10002, 400, "resource limits exceeded for account"), health.LogRefusesWrites},
		"no peers":             {js(10005, 400, "no suitable peers for placement"), health.LogRefusesWrites},
		"message too large":    {js(10077, 400, "message size exceeds maximum allowed"), ""},
		"no responders":        {nats.ErrNoResponders, health.LogUnreachable},
		"no stream response":   {jetstream.ErrNoStreamResponse, health.LogUnreachable},
		"no answer":            {fmt.Errorf("read: %w", nats.ErrTimeout), health.LogUnreachable},
		"line is down":         {nats.ErrDisconnected, health.LogUnreachable},
		"connection is closed": {nats.ErrConnectionClosed, health.LogUnreachable},
		"no leader": {js(10008, 503, "JetStream system temporarily unavailable"),
			health.LogUnreachable},
		"server that starts":        {jetstream.ErrJetStreamNotEnabled, health.LogUnreachable},
		"another 503":               {js(10999, 503, "soon"), health.LogUnreachable},
		"stream that is restored":   {fmt.Errorf("append: %w", eventlog.ErrRestoring), health.StreamLost},
		"stream behind its archive": {fmt.Errorf("append: %w", eventlog.ErrBehind), health.StreamBehind},
		"wrong sequence":            {js(10071, 400, "wrong last sequence: 7"), ""},
		"no such event":             {eventlog.ErrNotFound, ""},
		"rights":                    {js(10140, 403, "not permitted"), ""},
		"no link of this chain":     {eventlog.ErrNoLink, ""},

		"full disk":                    {host(syscall.ENOSPC), health.DiskFull},
		"quota":                        {host(syscall.EDQUOT), health.DiskFull},
		"no room for a sandbox's disk": {fmt.Errorf("sandbox: %w", sandbox.ErrNoRoom), health.DiskFull},
		"tests on a full disk":         {tests(verifier.ClassSandbox, host(syscall.ENOSPC)), health.DiskFull},
		"broken disk":                  {host(syscall.EIO), health.DiskFails},
		"damaged file system":          {host(fault.Damaged), health.DiskFails},
		"wrong checksum of a disk":     {host(syscall.EBADMSG), health.DiskFails},
		"read-only disk":               {host(syscall.EROFS), health.DiskFails},
		"descriptors":                  {host(syscall.EMFILE), health.Exhausted},
		"descriptors of the machine":   {host(syscall.ENFILE), health.Exhausted},
		"memory":                       {host(syscall.ENOMEM), health.Exhausted},
		"processes":                    {host(syscall.EAGAIN), health.Exhausted},
		"descriptors for a request":    {server(host(syscall.EMFILE)), health.Exhausted},
		"ports for a request": {server(&net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)},
			Err: syscall.EADDRNOTAVAIL}), health.Exhausted},
		"descriptors to look up a name": {server(&net.DNSError{Err: "dial udp 10.0.0.2:53: socket: too many open files",
			Name: "s"}), health.Exhausted},
		"no such program": {host(syscall.ENOENT), ""},
		"no such server":  {server(&net.DNSError{Err: "no such host", Name: "s"}), ""},

		"full disk in a sandbox":     {fault.Mark(syscall.ENOSPC), ""},
		"descriptors in a sandbox":   {fault.Mark(syscall.EMFILE), ""},
		"memory in a sandbox":        {fault.Mark(syscall.ENOMEM), ""},
		"sandbox that ended":         {fault.Mark(sandbox.ErrClosed), ""},
		"tests without a verdict":    {tests(verifier.ClassNoReward, odd), ""},
		"change that is too large":   {tests(verifier.ClassApply, sandbox.ErrTooLarge), ""},
		"server that is away":        {server(syscall.ECONNREFUSED), ""},
		"server that broke the line": {server(syscall.ECONNRESET), ""},
		"server that answers 503":    {server(errors.New("503 Service Unavailable")), ""},
	} {
		if got := outage.KindOf(c.err); got != c.want {
			t.Errorf("%s: %v is %q, want %q", name, c.err, got, c.want)
		}
	}
}
