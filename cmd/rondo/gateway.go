package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/gateway"
)

// gatewayPart speaks HTTP with harnesses and states their rollouts at the door, as an outsider does.
const gatewayPart = "gateway"

// gatewayKey is the environment variable with the one key of a gateway that has no file of tenants.
const gatewayKey = "RONDO_GATEWAY_KEY"

// gatewaySettings are what the gateway can be told.
type gatewaySettings struct {
	listen  string
	tenants string // a file
	slots   int
}

func (s *gatewaySettings) addFlags(cmd *cobra.Command, listen string) {
	s.slots = gateway.DefaultOptions().Slots
	f := cmd.Flags()
	f.StringVar(&s.listen, "gateway-listen", listen, "where the gateway listens for harnesses, for example 127.0.0.1:8790")
	f.StringVar(&s.tenants, "gateway-tenants", "", "YAML file of who may use the gateway, with keys and limits (or one key in "+gatewayKey+")")
	f.IntVar(&s.slots, "gateway-slots", s.slots, "harnesses' calls that are at the inference servers at once")
}

// everyPart is what `up` and `demo` run: the gateway only where it is told to listen.
func everyPart(s settings) []string {
	return slices.DeleteFunc(partNames(), func(name string) bool { return name == gatewayPart && s.gateway.listen == "" })
}

// serveGateway serves harnesses until the context ends.
func serveGateway(ctx context.Context, env runtime.Env, s settings) error {
	opts := gateway.DefaultOptions()
	opts.Slots = s.gateway.slots
	var err error
	if opts.Tenants, err = s.gateway.readTenants(); err != nil {
		return err
	}
	g, err := gateway.New(env, s.servers, opts)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.gateway.listen)
	if err != nil {
		return fmt.Errorf("--gateway-listen: %w", err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); len(opts.Tenants) == 0 && (!ok || !at.IP.IsLoopback()) {
		listener.Close()
		return fmt.Errorf("--gateway-listen %s: others can reach it, so it needs keys: set %s, or --gateway-tenants", s.gateway.listen, gatewayKey)
	}
	env.Logger.Info("the gateway listens", "url", "http://"+listener.Addr().String(), "tenants", len(opts.Tenants))
	return serveHTTP(ctx, listener, g)
}

// readTenants reads who may use the gateway; nobody is named where everybody may.
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
	text, err := os.ReadFile(s.tenants)
	if err != nil {
		return nil, fmt.Errorf("read --gateway-tenants: %w", err)
	}
	tenants, err := gateway.ReadTenants(text)
	if err != nil {
		return nil, fmt.Errorf("read --gateway-tenants %s: %w", s.tenants, err)
	}
	return tenants, nil
}
