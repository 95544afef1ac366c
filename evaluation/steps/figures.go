package steps

// Figure is one figure of a training step, as trackers know it.
type Figure struct {
	Name    string
	Meaning string
}

// The names of the figures. They are kept: a tracker's charts are by name.
const (
	rewardMean        = "reward/mean"
	rewardStd         = "reward/std"
	batchGroups       = "batch/groups"
	batchSamples      = "batch/samples"
	batchMasked       = "batch/masked"
	batchTokens       = "batch/tokens"
	batchSampled      = "batch/sampled_tokens"
	turnsMean         = "rollout/turns_mean"
	sampledMean       = "rollout/sampled_tokens_mean"
	stalenessMax      = "staleness/max"
	stalenessMean     = "staleness/mean"
	policyVersion     = "staleness/current_version"
	started           = "rollouts/started"
	scored            = "rollouts/scored"
	failed            = "rollouts/failed"
	forfeited         = "rollouts/forfeited"
	inFlight          = "rollouts/in_flight"
	groupsCompleted   = "groups/completed"
	droppedStale      = "groups/dropped_stale"
	droppedFiltered   = "groups/dropped_filtered"
	stepSeconds       = "throughput/step_seconds"
	rolloutsPerSecond = "throughput/rollouts_per_second"
	tokensPerSecond   = "throughput/sampled_tokens_per_second"
	gapMeanAbs        = "logprob_gap/mean_abs"
	gapMaxAbs         = "logprob_gap/max_abs"
	gapKL             = "logprob_gap/kl"
	gapTokens         = "logprob_gap/tokens"
)

// Figures lists all figures of a row, in the order in which they are shown.
var Figures = []Figure{
	{rewardMean, "mean reward of the scored rollouts in the batch's groups"},
	{rewardStd, "standard deviation of these rewards"},
	{batchGroups, "groups in the batch"},
	{batchSamples, "samples in the batch"},
	{batchMasked, "scored rollouts of its groups that are not trained on"},
	{batchTokens, "tokens in the batch"},
	{batchSampled, "tokens of the batch that the model sampled and that are trained on"},
	{turnsMean, "mean turns of the scored rollouts in the batch's groups"},
	{sampledMean, "mean sampled tokens of these rollouts"},
	{stalenessMax, "policy versions between the oldest dispatch in the batch and the batch"},
	{stalenessMean, "mean of these versions over the batch's rollouts"},
	{policyVersion, "last published policy version when the trainer took the step"},
	{started, "rollouts started since the step before"},
	{scored, "rollouts scored since the step before"},
	{failed, "rollouts failed since the step before"},
	{forfeited, "rollouts scored 0 since the step before because the agent broke its tests or sandbox"},
	{inFlight, "rollouts without an outcome when the trainer took the step"},
	{groupsCompleted, "groups completed since the step before"},
	{droppedStale, "groups that the feed dropped as too old since the step before"},
	{droppedFiltered, "groups that the feed filtered since the step before"},
	{stepSeconds, "seconds since the step before, of the first step since the run was opened"},
	{rolloutsPerSecond, "scored rollouts per second in this time"},
	{tokensPerSecond, "sampled tokens of finished rollouts per second in this time"},
	{gapMeanAbs, "mean distance in nats between the log-probabilities of trainer and sampler, where the trainer states it"},
	{gapMaxAbs, "largest such distance"},
	{gapKL, "estimate of KL(sampler ‖ trainer)"},
	{gapTokens, "tokens that the trainer compared"},
}
