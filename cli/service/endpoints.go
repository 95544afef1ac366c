package service

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/inference/fleet"
)

// EndpointKey is the environment variable with the one key of all inference servers.
const EndpointKey = "RONDO_ENDPOINT_API_KEY"

// newFleet makes what this process knows of inference servers.
func (s *Settings) newFleet(l *slog.Logger, metrics prometheus.Registerer) (*fleet.Fleet, error) {
	opts := fleet.DefaultOptions()
	opts.Slots = max(1, s.generatorSlots, s.Gateway.slots)
	opts.Builtin, opts.Logger, opts.Metrics, opts.Keys = s.Builtin, l, metrics, s.keys
	return fleet.New(opts)
}

// serversAway are the inference servers that this process asks, and that are away.
func (s *Settings) serversAway() (away []health.Outage) {
	states, _ := s.servers.Look()
	for _, server := range states {
		if server.Away != "" {
			away = append(away, health.Outage{Of: server.URL,
				Reason: fmt.Sprintf("%s failed in a row, the last one: %.300s", app.Plural(server.Failures, "request"),
					server.Away)})
		}
	}
	return away
}

// AddKeysFlag adds the flag that names the file of keys of inference servers.
func (s *Settings) AddKeysFlag(f *pflag.FlagSet) {
	f.StringVar(&s.EndpointKeys, "endpoint-keys", "",
		"YAML file of which inference servers, judges and servers of tools are shown which key (or one key for all of the first two in "+EndpointKey+")")
}

// ReadKeys reads the keys of inference servers.
func ReadKeys(file string) (fleet.Keys, error) {
	key := os.Getenv(EndpointKey)
	switch {
	case file != "" && key != "":
		return fleet.Keys{}, fmt.Errorf("give --endpoint-keys or %s, not both", EndpointKey)
	case file == "":
		return fleet.Everywhere(key), nil
	}
	text, err := yamltext.ReadFile(file)
	if err != nil {
		return fleet.Keys{}, fmt.Errorf("read --endpoint-keys: %w", err)
	}
	keys, err := fleet.ReadKeys(text)
	if err != nil {
		return fleet.Keys{}, fmt.Errorf("read --endpoint-keys %s: %w", file, err)
	}
	return keys, nil
}
