package readme

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// guarantee is a promise to users and the tests that would fail if it were broken.
type guarantee struct {
	promise string
	tests   []string
}

// guarantees are the source of docs/guarantees.md. A test whose name changes is renamed here, too.
var guarantees = []struct {
	subject string
	list    []guarantee
}{
	{"Log and services", []guarantee{
		{"A killed service loses nothing: its outputs are on the log before its input is acknowledged.",
			names("TestPlaneIsKilled TestComposeUp TestDeadWorkerLosesNothing TestCrashBeforeTheEpisodeEnds")},
		{"No event is recorded twice and no chain forks, whoever writes at the same time.",
			names("TestRacingWriters TestRacingWritersWhileLeadersChange TestTwoOfEveryService TestTwoGenerators TestZombies")},
		{"In a cluster no rollout stands still because a server is behind another one. A submission is refused at a second look at the earliest.",
			names("TestReadsShowWhatWasSeen TestHandlersReadAtTheirInput TestAdvisoryIsAheadOfTheLeader TestLeaderIsBehind TestRefusedAtTheSecondLook")},
		{"Two processes of a deciding service never disagree. A standby takes over, also when the bucket of leases is lost.",
			names("TestTwoActives TestStandbyTakesOver TestLeaseBucketIsLost")},
		{"A deciding process that cannot read the log, or cannot write what it decides, gives its lease back and says so. It takes the lease only when it has read the whole log.",
			names("TestLeaderThatCannotReadResigns TestLeaderThatCannotCompleteResigns")},
		{"A process that comes back an hour later, with all that it had sent, changes nothing that others have done meanwhile.",
			names("TestZombies")},
		{"How many processes do the work, in which order it ends, and who dies meanwhile changes no group's task, advantages and filters, and on policy no step's samples.",
			names("TestVariants")},
		{"No rollout vanishes: one that does not go on for as long as its agent has left of `limits.timeout` fails, later by as long as its stage waited for the end of an outage.",
			names("TestDeadline TestDue TestDueInAnOutage TestDueBehindStatements TestOutageIsNotOverdue TestParkKeepsNothingAlive TestClosing TestGoodRunHasNoFindings")},
		{"Waiting is not the agent's time: `timeout` ends a rollout whose own turns and tools took it, as the log says. Queues, failed attempts and restarts end none so.",
			names("TestAgentTimeout TestWaitingIsNotOverdue TestLatencyIsOfTheAnswer TestDurationIsTheToolsOwn TestLimitOfAStarvedCommand")},
		{"The audit finds a fault in a log or its objects when it is planted there.", names("TestPlantedFaults")},
		{"A decision can be made again from the log, with the same bits on amd64 and arm64.",
			names("TestVerify TestVerifyFindsWhatWasPlanted TestVerifyLateFact TestFloatsAreTheSameEverywhere TestBits TestOnArm64")},
		{"From 0.1.0 on, a recorded run stays readable by later versions.", names("tests/golden.TestRecorded")},
		{"Local state may be deleted or damaged: it is folded from the log again.",
			names("TestDamagedFilesBeginAgain TestStreamMadeAgain TestPowerCut")},
		{"A run on which a deciding service is stuck is paused with the reason, and other runs do not notice.",
			names("TestStuckRunIsPaused TestWhatIsNoRunsFaultPausesNone TestStuckRunIsTriedAgain TestNonsenseOnTheLog TestNoEventAtAll TestTrajectoryChangesLater TestHostileTrajectories TestFeedPanics")},
		{"No slot stays free while a run has work for it. Open runs without work take none.",
			names("TestSharing TestIdleRunsTakeNoSlots")},
		{"Runs that always have work have equal parts of a service's slots, be their calls short or long.",
			names("TestSharing TestShortAndLongCallsHaveEqualTime TestEqualRunsHaveEqualParts")},
		{"Beside runs with any number of inputs waiting, a run waits at the log for a few requests of each.",
			names("TestRequestsTakeTurns")},
		{"A run whose calls hang leaves slots to other runs as soon as the first of them has failed.",
			names("TestFailuresLeaveAnEighth TestHangingRunLeavesSlots")},
		{"A task runs only on a tool runner that meets its needs.", names("TestTasksGoWhereTheirNeedsAreMet")},
		{"A command that follows a plane finds it again after a restart. A command that ends by itself does not wait for ever.",
			names("TestFollowersFindTheRestartedPlane TestLostConnection")},
	}},
	{"Crashes, disks and power", []guarantee{
		{"Each server of a cluster has every message of a replicated stream, whichever of them are killed while messages come.",
			names("TestKilledServersKeepTheirMessages")},
		{"Acknowledged events, and the objects that they name, survive a power cut. With `--durability 100ms` the last 100 ms may be lost, but never a run that was reported open.",
			names("TestPowerCuts TestFullBlocksAreCut TestUpIsCut TestObjectsAreCut TestPacksAreCut TestKilledPacker TestMend TestLogLostWhatWasFolded TestNATSConfiguration")},
		{"Servers of a cluster that sync each write (`sync_interval: always`) keep every acknowledged message when one of them, two or all lose their power in the same moment, and runs go on. The file system keeps new folders with the files synced in them, as ext4, XFS and btrfs do.",
			names("TestPowerOfReplicasIsCut TestRunOutlivesPowerCuts")},
		{"A run's stream exists after a kill in the moment of its creation.", names("TestKilledWhileMaking")},
		{"An outage of log, store or disk is reported in logs, metrics, `/healthz` and `/readyz` within about 15 s and ends by itself. Only an external NATS server whose disk was full needs a restart.",
			names("TestFullDiskHeals TestFullDiskElsewhere TestServerStopsAndDies TestStoreOutage TestStalledInputs TestDiskWasFull TestLogStands TestStreamAtItsLimit TestStoreThatTakesNothing TestDiskWithoutInodes TestDiskThatTakesNothing")},
		{"A slow disk is not called full, and neither log, store nor disk is blamed for a process that gets no processor.",
			names("TestSlowDiskIsNotFull TestStarvedProcess TestSilenceToAStarvedProcess TestSilentServer TestSlowAppends TestStoreOnASlowDisk")},
		{"What is the plane's costs no attempt, fails no rollout and pauses no run: while the log, the store, a disk, descriptors, ports or memory fail, a run is restored or the plane is stopped, inputs wait, and go on by themselves. They leave their slots to others. The log says at which stages rollouts wait, from when and until when, and that time does not count for `limits.timeout`: a minute of it where the process's probes find well what an input waits for.",
			names("TestOutageOf TestUnavailableServer TestExhausted TestExhaustedMachine TestOutageOfTheStore TestOutageOfOneRun TestOutageOfARestoration TestOutageBelowAnAppend TestOutageIsStated TestWaits TestStopIsExcused TestSilenceIsExcused TestOutageIsNotOverdue TestOutageIsNoTurnsTime TestOutageThatIsStatedLater TestStopInAnOutage services/scorer.TestOutageCostsNoTry services/toolrunner.TestOutageCostsNoTry TestWhatIsNoRunsFaultPausesNone TestStoreAnswers503")},
		{"A trace collector that is away, or hangs, holds up no service and is logged once.",
			names("TestCollectorHangs TestOneTraceOfARollout")},
		{"A full disk ends no process: writes of local state wait for room.", names("storage/projection.TestFullDisk")},
		{"An archived run is the recorded run, byte for byte.",
			names("events/eventlog.TestArchive tests/e2e.TestArchive TestArchiveOfKilledRun TestRestoreElsewhere TestBrokenArchive TestBrokenObjects TestTwoArchivers")},
		{"When the log's disk is lost, an open run is restored from the store but for its last five minutes, or the interval of its run file.",
			names("TestOpenRunIsArchived TestArchiverDiesBeforeItStates TestLostDisk")},
		{"A run's stream is restored beside running services without a fork: nobody sees or extends it before it is whole. A stream that differs from its archive is refused with the first sequence that differs.",
			names("TestRestoreBesideServices TestHiddenWhileItIsRestored TestRestoreOfAFork TestTwoRestore TestRestoreBesideADecider TestAppendToAStreamThatWasMadeAgain")},
		{"Nothing is appended to a stream that ends before its archive, as far as the catalogue knows it, and nothing is sealed behind an archive that holds other events than the stream.",
			names("TestStreamIsRolledBack TestSealBehindAFork")},
		{"`rondo gc` deletes nothing that is reachable.",
			names("cli/gc.TestGC TestGCWhileThingsHappen TestGCOfAHistoryThatIsNotWhole TestLayersOfAgentsAreKept TestALayerThatARunNamesStays")},
		{"Closed runs hold no memory, goroutines, consumers or local files, however many there are, and a restart makes none again.",
			names("TestClosedRunsCostNothing TestClosedRunIsLeft TestConsumersOfAClosedRunGo")},
		{"Without a file, retention deletes streams of closed runs alone, and only what the archive holds.",
			names("TestDefaultRetention TestLateFactIsNotDeleted TestGCOfOldRuns")},
		{"Retention forgets closed runs without a stream only, and deletes nothing that another run refers to.",
			names("TestGCForgetsRuns TestGCIsKilledAfterItForgot")},
		{"Weights appear whole or not at all, and a policy's pointer only moves forward.",
			names("TestCrashAtEveryWrite TestPointerMovesForwardOnly")},
	}},
	{"Batches and rewards", []guarantee{
		{"A trainer that follows the protocol trains each batch once, and gets it again byte for byte after a crash.",
			names("TestEveryBatchCountsOnce TestRewind services/trainerfeeder.TestFile")},
		{"No group is more than `staleness.max` versions old when its batch is consumed. This holds in the first feed, with the policy `drop`, but for [exceptions](decisions/0006-staleness.md).",
			names("TestTooOldWhenConsumed TestNothingAheadOnPolicy TestEveryBatchCountsOnce TestStalenessWhenConsumed TestPlantedFaults")},
		{"What a teacher says of a token is in the batch at the place of that token. Each teacher speaks once of a rollout, and one that is silent holds a batch up for `teacher_wait` at most.",
			names("inference.TestScore TestTeachersScoreOnce TestKilledTeacher TestTeachersOutside TestBatchWithTeachers TestTeachersThatDoNotSpeak")},
		{"A hint is about sampled tokens of one turn, and what its teacher says is in the batch at the place of these tokens and nowhere else. Who gives hints speaks once of a rollout, and masks nobody by silence.",
			names("TestHintsFromOutside TestHintRows TestHintsThatDoNotFit TestHintedSpansAreScored TestKilledHintedTeacher TestBatchWithHints TestHintsThatDoNotCome TestHintsReachTheBatch TestPlantedFaults")},
		{"No sample without a token that is trained on is in a batch: the fact names it, or its rollout, with the reason.",
			names("TestSamplesWithoutLoss TestFilters TestConstrainedTokens")},
		{"A conversation that another model answers is on the log with that model, is sampled once though its agent is lost, and has no token in a batch.",
			names("TestOtherModels TestOtherModelsByTree TestOtherModelsBehindARestart TestConversationsOfOutsiders TestConversationsAreAudited")},
		{"A conversation that a rule of the run masks has no token in the loss of any batch, and no other conversation loses one.",
			names("TestMaskedConversations TestMaskedConversationsAlone TestConversations TestConversationsOfOutsiders TestHarnessesByTokens TestPlantedFaults")},
		{"Each sample of a batch is in exactly one rank and micro-batch.",
			names("TestPackConserves advantage/packing.TestBalance TestPlantedFaults")},
		{"A reward follows from its recorded components, or from feedback that was recorded before it.",
			names("TestRewardDifferences TestRewardIsTheSameAgain")},
		{"A machine, a store or a judge that fails is retried and then fails the rollout. It is never scored 0.",
			names("TestJudge TestObjectsThatAreGone TestVerifiersThatGiveNoVerdict TestClasses")},
		{"An agent that breaks its sandbox or its tests gets its own outcome: the model reads an answer, or the reward is 0 and the attempt counts.",
			names("TestWhoseDoing TestForfeits TestBrokenTests TestForfeitedRewards TestExhaustingTurns TestTimeOfTools TestSandboxThatEndsEachTime TestAgainOfLostTurns TestCheatingAttemptsCount")},
		{"A fork begins with the conversation and workspace of its origin, and is trained on its own turns alone.",
			names("TestFork TestForkTrainsOnItsOwnTurns TestPlantedFaults")},
		{"A run whose rollouts mostly fail, or that spends its budget, is paused, also across restarts.",
			names("TestCircuitBreaker TestLongEpisodes TestBrakeOfSilence TestBudget")},
		{"An empty value in a run file, a `run.opened` or a flag counts as it is written, or is refused: it never stands for a default. A variable of the environment that nothing reads is refused.",
			names("TestEmptyValues TestOpeningSaysDefaults TestEmptyFlags TestUnknownVariables")},
		{"A limit or budget by tokens holds also where the server counts none: tokens are estimated, and the turn says so.",
			names("TestTokensEstimated")},
		{"A run that yields nothing to train on is paused with what the inference server lacks. Equal rewards have a longer window and their own reason.",
			names("TestServerWithoutTokens TestNoSignal TestLacks")},
		{"A version is judged once against another one, by rules and rollouts from which anybody can judge again. A person's promotion stands.",
			names("TestRelease TestReleaseGoesOn TestJudgements evaluation/release.TestNext TestGateRules TestCanaryRules")},
		{"Versions that are the same are found to differ in production at most one time in twenty.",
			names("TestCompareArms TestCompareArmsHoldsItsLevel TestSides")},
		{"Tests read what was said in a rollout if their task says so, and cannot change it; the code under test does not see it in a sandbox of its own.",
			names("TestTranscript TestTranscriptIsBounded")},
		{"An evaluation that is killed comes to the result of an undisturbed one.", names("TestEvalKilled")},
		{"A confidence interval holds the true value as often as it promises.",
			names("TestCoverage TestOffPolicyIntervals")},
		{"The verdict \"significantly worse\" is wrong at most one time in twenty.",
			names("TestVerdictsHoldTheirLevel TestSignFlipOfDarwinsPlants")},
	}},
	{"Tokens and inference servers", []guarantee{
		{"A sample of a harness is exactly what its server was asked and answered.",
			names("TestSamplesAreWhatWasAsked TestExactContinuation tests/gateway.TestBranches")},
		{"The log holds the ids and log-probabilities of sampled tokens bit by bit, and readers take packed and plain ones.",
			names("TestPackedRoundTrip TestRecordedColumns TestPlainTokens events.TestHostileColumns")},
		{"A token's policy version was reported by the server and published before. Otherwise it is -1, or the turn is refused.",
			names("TestReportedVersions TestSampledTurns TestFaultsOfTheServer")},
		{"A run that asks by tokens trains on exactly what the model saw and sampled: one sample, after a restart too, and what contradicts it is refused.",
			names("TestTokensInTokensOut TestTokensOfSteps TestTokensAfterAKill TestTokensIn TestHostileTokens")},
		{"A request of an agent or a harness that goes on with a recorded turn is asked behind exactly that turn's tokens, and each answer is trained on once, however many requests go on with it.",
			names("TestHarnessesByTokens TestDialectsByTokens TestParallelByTokens TestTwinsByTokens TestAgentByTokens TestSamplesAreWhatWasAsked")},
		{"An agent or a harness that asks how many tokens a request has is told with how many its turn is then asked, or is refused by name. Nothing is sampled, recorded or guessed.",
			names("TestCountTokens TestCount TestUncounted TestAgentCounts TestPythonClients")},
		{"A conversation that fills the server's context ends its rollout, which is scored as it stands and is no failure.",
			names("TestContextFull TestContextLimitIsAsked TestOverflow TestContextLimit")},
		{"A rollout that sums its work up is trained on each token that it sampled once, and a summary on the log is never asked for again.",
			names("TestSummary TestSummaryFails TestKilledBehindASummary TestSummariesInABatch TestLongRolloutsWithKills")},
		{"A model's reasoning is recorded and goes back in the fields in which the server gave it.",
			names("TestReasoningGoesBack TestReasoningColumn TestReasoningIsExported")},
		{"A server that loads its model is waited for and costs no attempts.",
			names("TestLoadingServer TestServerThatLoads")},
		{"A run file adds fields to requests, and cannot change those that Rondo sets.",
			names("TestExtraBody TestExtraBodyReachesTheServer TestOwnFieldsAreRefused")},
		{"Every sampling parameter is sent and recorded, so the model's generation_config.json decides only where the run says null.",
			names("TestSamplingIsSent TestSamplingParameters TestSamplingOfARunFile TestStrictServer")},
		{"No turn is trained on whose log-probabilities come from another distribution, as far as the server tells.",
			names("TestRawLogprobs inference/probe.TestMeasure")},
		{"`rondo doctor --endpoint` finds each lack of an inference server before a run does.",
			names("TestServer TestDoctorOfAnEndpoint")},
		{"A server gets no more requests than its ramp allows. A run survives a server that fails half of its calls, limits the rest and restarts cold.",
			names("TestRamp TestOneBackend TestThreeBackends")},
		{"Single faults never empty a server, a turn may take as long as its run says, and every answer that came whole is one turn.",
			names("TestPacedLoad TestOneFaultOfMany TestTurnTakesAsLongAsTheRunSays")},
		{"No call of a turn that was cut is run or handed to a harness, and a word that nobody knows is never the model's end.",
			names("TestEndings TestFinishes")},
		{"Tools of agents that are no functions are called and answered in one sample, and types that a chat cannot carry are refused by name.",
			names("TestToolsOfAgents TestToolsOfResponses TestUnknownTypes")},
		{"A harness sees neither a call nor the end of an answer before the turn is recorded.",
			names("TestNothingIsCompleteThatIsNotRecorded TestStreamsThatBreakOff TestKilledGatewayLosesNoAnswer TestAnotherGatewayGoesOn")},
		{"What a client reads of an answer under way is what the log then holds of it. A server whose streams lack tokens is asked for whole answers.",
			names("TestChunksAreTheWholeAnswer TestStreamsSayWhatIsRecorded TestStreamsCostNoTokens TestToldAnswersAreNotBegunAnew")},
		{"What a harness was answered of its workspace is on the log, done once, and what its verifier sees, whoever dies. Its agent has nothing of the verifier's.",
			names("TestWorkspaceOfAHarness TestCallsOutliveProcesses TestTwoClients tests/gateway.TestHostileWorkspace TestForgedEnds")},
		{"Answers of inference servers take at most 320 MiB of live memory in a process, and requests at the gateway at most 384 MiB.",
			names("TestAnswersAreHeldToTheirMemory TestMemoryOfRequests TestAllThatHoldAndWait")},
		{"A client that sends or reads slowly holds no slot, and its memory for two minutes at most.",
			names("TestSlowRequestsHoldNoSlot TestSlowBodies TestBodyThatNobodyReads TestSlowReader")},
	}},
	{"Tools and workspaces", []guarantee{
		{"Finished turns survive the runner: another one has the workspace from the log.",
			names("TestWorkspaceComesBackFromTheLog TestTheLogsWorkspaceCounts TestRunnerKilledInATurn")},
		{"Sandboxes that share a snapshot never change each other's workspace, and a change on an overlay equals that of a copy, byte for byte.",
			names("TestOverlayLikeCopy TestSharedSnapshots")},
		{"An unpacked snapshot is whole, or is unpacked again.", names("TestSnapshotsInAFolder")},
		{"The state of a shell and the list of todos are there in the next turn, whichever runner has it.",
			names("TestShellGoesOn TestToolsRemember TestShellKeepsNoSecrets")},
		{"An answer from the tool cache is the one that running the call would give.",
			names("TestKnownAnswersAreTrue TestDeterministicCommands TestWhichCommandsAreKnown TestWhatTreesDoNotTell TestWhichCallsAreKnown TestCacheChangesNothing")},
		{"A replayed tool call or verdict comes out the same, or is named.",
			names("TestAgain TestAgainFindsWhatWasPlanted TestReplayTools")},
		{"The tools of a server follow from the run's opening, whatever the server says later.",
			names("TestToolServers TestListings")},
		{"A server of tools that floods, hangs, dies or lies costs bounded memory and time and produces an answer. An unreachable one outside is never scored 0.",
			names("TestHostilePrograms TestHostileServersOutside TestServersThatCannotBeAsked TestCheckable")},
		{"The key of a server of tools is sent to that server alone and recorded nowhere.",
			names("TestOutside TestToolServers")},
		{"`read_lints` never reports a file as good that was not checked.", names("TestMissingLinters TestReadLints")},
	}},
	{"Tasks and verifiers", []guarantee{
		{"A task that asks for what Rondo does not have is refused by the field's name. No field is ignored in silence.",
			names("TestHarborTasks TestNoFieldIsIgnored")},
		{"With separate tests, code under test decides no reward, and a score says whether its tests were separate.",
			names("TestAttacks TestAttacksOnEveryTask TestUnderTest TestSeparation")},
		{"A commit becomes a task only if its own tests fail without it and pass with it, three times over; reading it runs nothing of its repository.",
			names("tasks/commits.TestImport tasks/commits.TestCompare TestHostileHistory TestHostileRepositories")},
		{"A run trains on tests in process only if its file says so, and lint never says `ok` of them.",
			names("TestValidate TestSeparation TestLintOfTestsInProcess")},
		{"Files and processes that an agent leaves (planted rewards, edited tests, hooks, compiled code, links, daemons) win nothing that its work does not. Code that tests in process run can.",
			names("TestCheats TestAgentCodeCannotChangeTheVerdict TestAttacksOnPython TestSift TestLinksLikeTheKernel")},
		{"Tests that end by a signal, that fail, or whose reward file was replaced, linked or locked give no reward above 0.",
			names("TestAgentCodeCannotChangeTheVerdict TestRewardFiles TestFailedTestsGiveNoReward")},
		{"Graded tests give a reward only by what the test program reported over its own channel.",
			names("TestGradedApart TestShadowedModules TestPrintedReports TestAttacksOnPython TestAttacksOnGo TestReadReport TestGrade FuzzGrade TestInstances")},
		{"Where canaries guard graded tests, code that passes a test whose expectation is wrong gets no reward, unless it guesses which of the runs are true, which it cannot know by a clock. Tests that pass over the untouched snapshot give none.",
			names("TestGuarded TestDeal TestTheFirstRunAlone TestPlant sandbox/verifier/canary.TestPython TestGolang sandbox/verifier/canary.TestScript TestRust TestScriptCanaries TestRustCanaries TestAttacksOnPython TestAttacksOnGo")},
		{"A process in an agent's own sandbox takes no kernel resources from its tests where root owns the sandboxes. Elsewhere the score says so.",
			names("TestAgentsAreAnotherUser sandbox.TestRoles")},
		{"A snapshot's repository contains no other commit than its own.",
			names("TestHistoryIsScrubbed TestInnerRepositories")},
		{"A task's stage is scored by its own tests before the next instruction, and the reward follows from the verdicts.",
			names("TestSteps TestPlantedFaults")},
		{"A task's stage that brings files begins with the same workspace on every runner, and these files do not count as the agent's work.",
			names("TestSteps TestStateOf TestMeasureStepFiles TestLintOfStepFiles")},
	}},
	{"Sandboxes", []guarantee{
		{"A program in a sandbox stays there and within its limits.",
			names("TestEscapes TestEveryNumber sandbox/internal/jail.TestArguments TestRacesAgainstFileOperations TestSetuidFiles TestRulesInsideNamespaces TestLandlockLevel TestMemoryLimit TestProcessorLimit TestForkBomb")},
		{"No program in a sandbox ends its first process by a signal.", names("TestEscapes TestInitOutlivesSignals")},
		{"No sandbox is set up by another build than its owner's, or shows other files of the host than requested.",
			names("TestFirstProcess TestSparesOfAKind")},
		{"The memory limit counts shared memory, page tables, pipes and sockets, with control groups and without.",
			names("TestMemoryThatIsNoProcesss TestMemoryLimit TestMemoryLimitByPolling")},
		{"A killed owner of sandboxes leaves no process, mount, control group or folder, and nobody else's are touched.",
			names("TestKilledOwnerLeavesNothing TestOwnersReapFromTimeToTime TestForeignOwners")},
		{"What a sandbox writes on a disk is bounded, has its room reserved before the sandbox begins, and is gone with it.",
			names("TestDiskIsBounded TestNoRoomForADisk TestDiskGoesWithItsSandbox TestWorkspacesOnDisk")},
		{"A run's tools never run under less isolation than the run demands.", names("TestInfrastructureThatFails")},
		{"A sandbox reaches nothing outside but what its run, its task and the operator of its tool runner allow, and no private address but that of a registry's mirror.",
			names("TestProxyIsTheOnlyWayOut TestNoProxyUnlessAsked TestProxyNeedsNamespaces sandbox/egress.TestRefusals TestRegistriesThatAreNotAllowed TestRebinding TestOwnAddress TestHostileBytes TestTunnelIsForItsHost TestTaskWantsNoNetwork TestTaskAsksForLess")},
		{"A run sees a package registry's answer as it was first fetched, and a replay fetches nothing.",
			names("TestKeptAnswers TestChangedAnswer TestPackagesInstall TestNetworkOfARollout")},
		{"A layer of an agent is what its digest says, whole or not there, and writes nothing beside its folder.",
			names("TestLayersOpen TestManifestsAreWhatTheirDigestSays TestHostileLayers TestManyOpenAtOnce")},
		{"An agent that cannot be installed, or does not fit its profile, becomes no layer.",
			names("agents.TestBuildRefuses TestRegistryRefuses")},
		{"File tools read and write nothing by way of `/proc`, and a sandbox sees nothing of the host's kernel and devices there.",
			names("TestFileToolsDoNotLookIntoProc TestHostsProc")},
	}},
	{"Outsiders and users", []guarantee{
		{"Bad input changes nothing.",
			names("services/intake.TestRefusals TestMalformedInputIsADeadLetter TestTruncatedFilesAreRefused weights/safetensors.TestHostileFiles")},
		{"Rollouts of outsiders follow the same rules as others.",
			names("tests/outsiders.TestExternalRun TestOutcomesRaceWithDeadlines")},
		{"A sample that outsiders bring has no holes and no log-probability above 0.",
			names("TestSamplesWithHoles TestImpossibleFilesAreRefused TestTurnsWithHoles")},
		{"Nobody learns anything about an object by naming it in a submission.",
			names("TestForeignObjectsAreNotRead TestOwnObjectsTellNothing TestForeignWeights TestDigestsAreNotTold")},
		{"Nobody reads the dashboard without its link or its token; the link acts on nothing and stays the same over restarts.",
			names("TestReadingTakesTheLink TestLink TestDashboardPort")},
		{"While one sender floods, every other role, feed, policy and run gets its submissions through without a retry.",
			names("TestOneOutsiderFloods TestOneSenderFloods TestInventedNames TestSenders")},
		{"A flood of one queue of submissions leaves room in the stream for all others, and pays its quota when it arrives.",
			names("TestFloodLeavesRoom TestShareOfTheStream TestQuotasAreChargedOnArrival")},
		{"A flood from the outsiders of one run costs other runs nothing, and dead letters expire.",
			names("TestFloodOfMessages TestFloodOfBytes TestWhatIsOverTheQuotaComesLater TestDeadLettersExpire TestGapsOfTheCatalogue")},
		{"Weights of any size pass through the publisher in pieces.",
			names("TestSmallStatementsOfHugeWeights TestWeightsPassInPieces")},
		{"A reader allocates no more memory for an object than its reference says.",
			names("TestBlobTakesItsSizeOfMemory")},
		{"No data of a user who has not agreed reaches log or store.",
			names("TestProduct TestRefusedUsersLeaveNoTrace TestRunsTakeNothingOfUsersByDefault")},
		{"A session is sampled as a whole, everywhere alike.", names("TestSampled")},
	}},
	{"Keys, rights and secrets", []guarantee{
		{"Each service and each outsider can do its part on the log and no more.",
			names("TestEverybodyOnEverySubject TestOneRightTooMany TestPlaneUnderLock TestOutsiderAtTheIntake TestRevocation")},
		{"Each service and each outsider reads and writes its part of the bucket and no more.",
			names("TestEverybodyAtEveryPrefix TestOnePrefixTooMany TestPlaneUnderLock TestStoreKeysChange TestServersWithoutUsers")},
		{"Each container has its own keys, and there is no password.",
			names("TestEachContainerHasItsOwnKeys TestComposeUp")},
		{"A name that nobody has is an error of every command that takes it, at once.", names("TestUnknownNames")},
		{"Another user of the machine can neither connect to the log of `rondo up`, nor read its directory, nor use its gateway.",
			names("TestStrangerCannotConnect TestTokenIsNew TestForeignDirectory TestGatewayKeyFile")},
		{"A page in a browser cannot use the gateway without a key, the built-in policy or a metrics port, also where its own name was made to lead to that server.",
			names("TestBrowsers TestGuard TestPagesReachNoServer")},
		{"A run file sends no key to another host.", names("TestKeysStayWithTheirHosts FuzzKeys")},
		{"No error contains a secret. A server's error is a class and one short quoted line.",
			names("TestNoSecretInConnectionErrors TestErrorAnswersAreCut TestReason")},
		{"A key that a process was given is in no log line, error or tool answer of that process, also where it is escaped, or part of what is encoded as base64 or in hexadecimal digits.",
			names("wording.TestClean TestConcealedCredentials")},
		{"No prompt, answer, tool argument, tool output and error text reaches a trace.",
			names("TestOneTrace TestOneTraceOfARollout")},
		{"With `redact_secrets`, no secret that gitleaks's default rules find in a tool answer reaches events, store, prompt or trajectory.",
			names("TestSecretsStayOut TestRedact TestFindWhereverItStands TestFindingsAreThoseOfGitleaks TestGuards TestRedactIsBounded")},
		{"A model's text controls no terminal, and no name is markup in a report.",
			names("TestHostileRollout FuzzClean TestHostileNames")},
		{"Importing a repository runs no program that its settings name, fetches nothing and reads nothing outside of it.",
			names("TestHostileRepositories TestTreeBomb")},
		{"A YAML file takes memory and stack by its own size, whatever its aliases stand for.",
			names("TestBombs TestAliases")},
	}},
	{"Index of code", []guarantee{
		{"An updated index answers like one that was built at once, bit for bit, up to 200,000 chunks.",
			names("TestIncrementalEqualsFresh TestIncrementalIsFresh")},
		{"A crash at any step of an update leaves the old index or the new one, whole.",
			names("index/segment.TestCrashAtEveryStep index/update.TestCrashAtEveryStep")},
		{"Of two updaters neither loses anything.", names(
			"TestUpdatersAtOnce TestLoserChangesNothing TestTwoUpdaters")},
		{"A cold question takes three round trips to the store.", names("TestThreeRoundTrips")},
		{"`rondo gc` never deletes what an index needs.", names("TestReach TestOldIndexStays")},
		{"A walk that fails removes nothing from the index.",
			names("TestPartialWalk TestUnreadableFolder TestVanishingFiles TestMissingMount")},
		{"Ignore files mean what they mean to Git.", names("TestLikeGit FuzzLikeGit")},
		{"Code reaches store, log, cache and local state only sealed.",
			names("TestNothingOfTheCodeIsKept TestNothingInClear TestExchangedPages TestWhoHasNoKey")},
	}},
}

// names are the words of a list.
func names(list string) []string { return strings.Fields(list) }

// oneTest refuses a name that is no test's, or that of tests of several packages:
// FOLDER.NAME says which one guards.
func oneTest(declared map[string][]string, name string) error {
	folder, test, qualified := strings.Cut(name, ".")
	if !qualified {
		folder, test = "", name
	}
	switch folders := declared[test]; {
	case len(folders) == 0 || qualified && !slices.Contains(folders, folder):
		return errors.New("there is no such test")
	case !qualified && len(folders) > 1:
		return fmt.Errorf("there is one in each of %s: write FOLDER.%s", strings.Join(folders, ", "), test)
	}
	return nil
}

// TestOneTest: a name stands for one test.
func TestOneTest(t *testing.T) {
	declared := map[string][]string{"TestA": {"x"}, "TestB": {"x", "y/z"}}
	for name, good := range map[string]bool{
		"TestA": true, "x.TestA": true, "y/z.TestB": true, "x.TestB": true, "TestB": false, "TestC": false,
		"y/z.TestA": false, "z.TestB": false,
	} {
		if err := oneTest(declared, name); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGuarantees: docs/guarantees.md is the table above, and every name in it is that of one test.
func TestGuarantees(t *testing.T) {
	declared := declaredTests(t)
	var page strings.Builder
	promises := map[string]bool{}
	for _, group := range guarantees {
		fmt.Fprintf(&page, "\n## %s\n\n| guarantee | tests |\n|---|---|\n", group.subject)
		for _, g := range group.list {
			if promises[g.promise] || len(g.tests) == 0 {
				t.Errorf("%q is promised twice or by no test", g.promise)
			}
			promises[g.promise] = true
			for _, name := range g.tests {
				if err := oneTest(declared, name); err != nil {
					t.Errorf("%q names %s: %v", g.promise, name, err)
				}
			}
			fmt.Fprintf(&page, "| %s | `%s` |\n", g.promise, strings.Join(g.tests, "`, `"))
		}
	}
	generated(t, "docs/guarantees.md", "guarantees", page.String()+"\n")
}
