package compose_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/topology"
)

// scraped: the profile's Prometheus finds each container, takes what it serves, and
// has read the alert rules.
func (s *stack) scraped() {
	s.t.Helper()
	s.compose("--profile", "observability", "up", "--detach", "--wait", "--wait-timeout", "1200", "prometheus")
	missing := map[string]bool{"policy": true, "trainer": true, "dashboard": true}
	for _, service := range topology.Services {
		missing[service.Name] = true
	}
	s.eventually(3*time.Minute, "Prometheus has each container's metrics", func() bool {
		for container, value := range s.ask("up") {
			if value == "1" {
				delete(missing, container)
			}
		}
		return len(missing) == 0
	})
	if floors := s.ask("max by (container) (rondo_consumer_ack_floor)"); len(floors) < 3 {
		s.t.Errorf("consumers are %v", floors)
	}
	var rules struct {
		Data struct {
			Groups []struct{ Rules []struct{ Health string } }
		}
	}
	s.prometheus("rules", nil, &rules)
	read := 0
	for _, g := range rules.Data.Groups {
		for _, r := range g.Rules {
			if read++; r.Health == "err" {
				s.t.Errorf("a rule fails: %+v", rules)
			}
		}
	}
	if read < 9 {
		s.t.Errorf("Prometheus has read %d rules", read)
	}
	s.compose("--profile", "observability", "rm", "--stop", "--force", "prometheus")
}

// ask asks Prometheus, and gives the values by container.
func (s *stack) ask(query string) map[string]string {
	s.t.Helper()
	var answer struct {
		Data struct {
			Result []struct {
				Metric struct{ Container string }
				Value  [2]any
			}
		}
	}
	s.prometheus("query", url.Values{"query": {query}}, &answer)
	values := map[string]string{}
	for _, r := range answer.Data.Result {
		values[strings.TrimSuffix(r.Metric.Container, ".")], _ = r.Value[1].(string)
	}
	return values
}

func (s *stack) prometheus(path string, query url.Values, answer any) {
	s.t.Helper()
	client := http.Client{Timeout: time.Minute}
	response, err := client.Get("http://" + publish + ":9090/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v", path, response.Status, err)
	}
}
