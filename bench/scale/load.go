package scale

import (
	"errors"
	"fmt"
)

// Load is what a plane shall do, and what its machines and its store are like.
type Load struct {
	Rollouts  float64 `json:"rollouts_a_day"`
	Sandboxes float64 `json:"sandboxes"` // open at once
	Turns     int     `json:"turns"`     // of a rollout
	Sampled   float64 `json:"sampled_tokens_a_turn"`
	Prompt    float64 `json:"new_prompt_tokens_a_turn"`
	Changing  float64 `json:"turns_that_change_files"` // a fraction
	Memory    float64 `json:"task_memory_mib"`         // that the programs in a sandbox use
	Peak      float64 `json:"peak_to_mean"`
	Keep      float64 `json:"days_kept"`
	Cores     float64 `json:"cores_of_a_node"`
	NodeGiB   float64 `json:"gib_of_a_node"`
	Put       float64 `json:"usd_for_1000_writes"`
	Get       float64 `json:"usd_for_1000_reads"`
	Month     float64 `json:"usd_for_a_gb_month"`
	Prefix    float64 `json:"writes_a_second_of_a_prefix"` // that the store takes
	Subject   float64 `json:"server_bytes_of_a_subject"`   // each event has its own
}

// DefaultLoad is a million rollouts a day. Prices and the limit of writes are assumptions in the
// order of Amazon's S3 Standard.
func DefaultLoad() Load {
	return Load{
		Rollouts: 1e6, Sandboxes: 1e5, Turns: 40, Sampled: 300, Prompt: 700, Changing: 0.5, Memory: 256, Peak: 3,
		Keep: 30, Cores: 16, NodeGiB: 128,
		Put: 0.005, Get: 0.0004, Month: 0.023, Prefix: 3500, Subject: 300,
	}
}

func (l *Load) validate() error {
	for _, v := range []float64{l.Rollouts, l.Sandboxes, l.Sampled, l.Prompt, l.Memory, l.Peak, l.Keep, l.Cores,
		l.NodeGiB, l.Put, l.Get, l.Month, l.Prefix, l.Subject} {
		if !(v > 0 && v < 1e15) {
			return fmt.Errorf("%g: the numbers of a load are positive", v)
		}
	}
	if l.Turns < 1 || l.Turns > 10_000 || !(l.Changing >= 0 && l.Changing <= 1) {
		return errors.New("a rollout has 1 to 10000 turns, and none to all of them change files")
	}
	return nil
}
