package service

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/gateway"
)

// gatewayPart speaks HTTP with harnesses and submits their rollouts, as an outsider does.
const gatewayPart = "gateway"

// gatewayKey is the environment variable with the one key of a gateway that has no file of tenants.
const gatewayKey = "RONDO_GATEWAY_KEY"

// gatewayConnections bounds the connections of harnesses, each of which costs memory before its
// request is read; who comes when there are as many waits for one to end.
const gatewayConnections = 4096

// GatewayKeyFile holds, in the plane's directory, the key of a gateway that was given none: other
// users of the machine can reach its port, and whoever can use it states rollouts and has the
// inference servers' keys used.
const GatewayKeyFile = "gateway.key"

// gatewaySettings are what the gateway can be told.
type gatewaySettings struct {
	listen  string
	tenants string // a file
	slots   int
	cert    string // files of TLS, "" for plain HTTP
	key     string
}

func (s *gatewaySettings) AddFlags(cmd *cobra.Command, listen string) {
	s.slots = gateway.DefaultOptions().Slots
	f := cmd.Flags()
	f.StringVar(&s.listen, "gateway-listen", listen,
		"where the gateway listens for harnesses, for example 127.0.0.1:8790")
	f.StringVar(&s.tenants, "gateway-tenants", "",
		"YAML file of who may use the gateway, with keys and limits (or one key in "+gatewayKey+"; without either the "+
			"gateway makes one in "+GatewayKeyFile+" of --dir)")
	f.StringVar(&s.cert, "gateway-tls-cert", "",
		"certificate in PEM with which the gateway speaks TLS, for example /etc/rondo/tls.crt; it is read again when it changes")
	f.StringVar(&s.key, "gateway-tls-key", "", "key in PEM of --gateway-tls-cert, for example /etc/rondo/tls.key")
	f.IntVar(&s.slots, "gateway-slots", s.slots, "harnesses' calls that are at the inference servers at once")
}

// EveryPart is what `up` and `demo` run: gateway and dashboard only where they are told to listen.
func EveryPart(s Settings) []string {
	return slices.DeleteFunc(partNames(), func(name string) bool {
		return name == gatewayPart && s.Gateway.listen == "" || name == topology.Dashboard && s.Dashboard.listen == ""
	})
}

// serveGateway serves harnesses until the context ends.
func serveGateway(ctx context.Context, env pipeline.Env, s Settings) error {
	opts := gateway.DefaultOptions()
	opts.Slots = s.Gateway.slots
	var err error
	if opts.Tenants, err = s.Gateway.readTenants(); err != nil {
		return err
	}
	certificate, err := s.Gateway.certificate(env.Logger)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Gateway.listen)
	if err != nil {
		return fmt.Errorf("--gateway-listen: %w", err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); len(opts.Tenants) == 0 && (!ok || !at.IP.IsLoopback()) {
		listener.Close()
		return fmt.Errorf("--gateway-listen %s: others can reach it, so it needs keys: set %s, or --gateway-tenants",
			s.Gateway.listen, gatewayKey)
	}
	keyFile := ""
	if len(opts.Tenants) == 0 {
		keyFile = filepath.Join(env.Dir, GatewayKeyFile)
		key, err := plane.LastingToken(keyFile)
		if err != nil {
			listener.Close()
			return fmt.Errorf("the gateway's key: %w", err)
		}
		opts.Tenants = []gateway.Tenant{gateway.WithKey("default", key)}
	}
	g, err := gateway.New(env, s.servers, opts)
	if err != nil {
		listener.Close()
		return err
	}
	scheme := "http://"
	listener = netutil.LimitListener(listener, gatewayConnections)
	if certificate != nil {
		scheme, listener = "https://", certificate.listener(listener)
	}
	env.Logger.Info("gateway listening", "url", scheme+listener.Addr().String(),
		"tenants", len(opts.Tenants), "key_file", keyFile)
	go s.servers.FollowVersions(ctx, env.Log.Reader)
	return serveHTTP(ctx, listener, g)
}

// readTenants reads who may use the gateway; none where the flags and the environment name nobody.
func (s *gatewaySettings) readTenants() ([]gateway.Tenant, error) {
	key := os.Getenv(gatewayKey)
	switch {
	case s.tenants != "" && key != "":
		return nil, fmt.Errorf("give --gateway-tenants or %s, not both", gatewayKey)
	case key != "":
		return []gateway.Tenant{gateway.WithKey("default", key)}, nil
	case s.tenants == "":
		return nil, nil
	}
	text, err := yamltext.ReadFile(s.tenants)
	if err != nil {
		return nil, fmt.Errorf("read --gateway-tenants: %w", err)
	}
	tenants, err := gateway.ReadTenants(text)
	if err != nil {
		return nil, fmt.Errorf("read --gateway-tenants %s: %w", s.tenants, err)
	}
	return tenants, nil
}
