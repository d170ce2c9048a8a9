package transaction

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/delegate-io/dlite/internal/sealed"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/rs/zerolog"
)

const (
	// defaultLease is how long a transaction may be without activity before it is cleaned up
	// (rule T6).
	defaultLease = 24 * time.Hour
	// cleanupTimeout limits one attempt to clean up. Remaining resources are tried again later.
	cleanupTimeout = 5 * time.Minute
	// logWait limits how long the answer of an init or a step waits until its log is archived.
	// While the log service is away, the answer is sent first and the log ends later. The answer
	// of the cleanup waits for the log, at most maxLogWait; [Stages.Close] waits for the rest.
	logWait = 2 * time.Second
)

// resumeWait is how long a resumed transaction waits for its manager to send a task for
// it. See [WithResume].
const resumeWait = 10 * time.Minute

// Option configures [Stages]. An invalid value panics in [New].
type Option func(*config)

type config struct {
	dir      string
	slots    *capacity.Slots
	infras   []string
	delegate string
	lease    time.Duration
	log      zerolog.Logger
	openLog  openTaskLog
	http     *http.Client     // of the default openLog
	now      func() time.Time // for leases
	inFlight time.Duration
	masks    secrets.Config
	resume   bool   // WithResume was given
	memory   string // the directory of the notes, see WithResume
}

// WithLedger sets the directory of the ledger. Only one process at a time can use it. The
// default is dlite/transactions in the user's cache directory, or in the directory for
// temporary files if the user has no cache directory.
func WithLedger(dir string) Option { return func(c *config) { c.dir = dir } }

// WithSlots limits how many transactions are open at the same time (rule Q1). A transaction
// holds its slot until its cleanup has ended. The default is no limit. Stages that are joined
// must share one [capacity.Slots].
func WithSlots(s *capacity.Slots) Option {
	return func(c *config) {
		if s == nil {
			panic("transaction: WithSlots of nil")
		}
		c.slots = s
	}
}

// WithInfra sets the infrastructures whose task types [Stages.Routes] has: any of
// [Local], [VM] and [Kubernetes]. The default is Local. They need not match the
// driver: a driver of pods may run the stages that are meant for this machine. An
// unknown infrastructure panics in [New].
func WithInfra(infras ...string) Option {
	return func(c *config) { c.infras = slices.Clone(infras) }
}

// WithDelegate sets the delegate's name for the labels of resources and for the
// answer of an init. The default is the host name.
func WithDelegate(name string) Option { return func(c *config) { c.delegate = name } }

// WithLogger sets the log for events outside of tasks. The handlers log to the
// logger of their context if it has one. The default discards.
func WithLogger(log zerolog.Logger) Option { return func(c *config) { c.log = log } }

// WithLog sets the function that opens the log of each init and step, such as Open of a
// logger.Deliverer. URL and Key of the target are empty if the manager names no log
// service. The function must return at once: failures are errors of Write or Close, and do
// not fail the step. By default the output goes to the log service that the task names,
// over an HTTP client that obeys HTTP_PROXY, HTTPS_PROXY and NO_PROXY, and is dropped if the
// task names none. The default loses the log of a step if its log service is away for two
// minutes after the end of the step, or if the delegate is killed meanwhile.
func WithLog(open func(ctx context.Context, target logger.StreamConfig) logger.TaskLog) Option {
	return func(c *config) { c.openLog = open }
}

// WithMasks configures how secrets are masked in output, answers and logs. A command line
// must not show any secret, also no value that is too short to be masked: such a step gets its
// script in another way, or fails. The default is the zero value of [secrets.Config].
func WithMasks(cfg secrets.Config) Option { return func(c *config) { c.masks = cfg } }

// WithResume keeps transactions alive when the delegate's process dies (rule
// T5). Recover resumes transactions whose init had ended, if the driver is a
// [driver.Reattacher] and all background steps can be followed. When the manager
// sends the task of a step again, a step that still runs is followed to its end.
// A step that had ended is answered as before. A step that cannot be followed
// fails with [driver.ErrLost]. No step runs twice. The delegate must keep its id
// and its tasks: see poller.WithState. A transaction for which no task comes
// within 10 minutes is cleaned up.
//
// Variables between steps may hold secrets, so they are kept in memory only: dir
// is a directory in memory; empty means /dev/shm. They are encrypted there, with a
// key in the directory of the ledger. If the directory is not in memory, as on
// systems other than Linux, nothing is resumed.
func WithResume(dir string) Option {
	return func(c *config) {
		c.resume, c.memory = true, cmp.Or(dir, sealed.DefaultMemory)
	}
}

func defaultDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "dlite", "transactions")
}
