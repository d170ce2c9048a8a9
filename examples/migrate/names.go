package main

const newModule = "github.com/delegate-io/dlite"

// oldModules are the paths of the upstream module.
var oldModules = []string{"github.com/harness/dlite", "github.com/wings-software/dlite"}

// newNames has the counterparts of the names of the upstream packages. A name with an empty
// counterpart is rewritten with the call around it, or not at all.
var newNames = map[string]string{
	"client.Client": "client.Client", "client.RegisterRequest": "client.Registration", "client.RegisterResponse": "client.Delegate",
	"client.UnregisterRequest": "client.Unregistration", "client.TaskEventsResponse": "client.Pending", "client.TaskEvent": "task.Event",
	"client.Task": "task.Task", "client.LogInfo": "task.Logging", "client.DelegateInfo": "task.Delegate",
	"client.TaskResponse": "task.Response", "client.RunnerTaskResponse": "task.Response",
	"delegate.HTTPClient":  "client.HTTP",
	"httphelper.WriteJSON": "task.WriteJSON", "httphelper.WriteBadRequest": "task.WriteBadRequest",
	"logger.WriteJSON": "task.WriteJSON", "logger.WriteBadRequest": "task.WriteBadRequest",
	"poller.Poller": "poller.Poller", "poller.DelegateInfo": "client.Delegate",
	"router.NewRouter": "router.New", "router.RouteMap": "router.RouteMap", "router.Router": "router.Router",
	"task.Handler": "task.Handler",
}

// advice is for names without a counterpart.
var advice = map[string]string{
	"client.DelegateCapacity":  "ReportCapacity takes the number of stages",
	"poller.NewResponseWriter": "task.Serve runs a handler and returns its answer",
	"logger.Logger":            "use zerolog.Logger: poller.WithLogger, client.WithLogger and router.Standard take one",
	"logger.Logrus":            "use zerolog: logger.New makes the logger of a delegate",
	"logger.Default":           "there is no default logger: pass one to poller.WithLogger",
	"logger.Discard":           "leave the logger out: without one a part does not log",
}

// newFields has the new names of the fields of upstream types.
var newFields = map[string]map[string]string{
	"client.RegisterRequest":    {"ID": "DelegateID", "Type": "DelegateType", "Polling": "PollingModeEnabled"},
	"client.UnregisterRequest":  {"ID": "DelegateID", "Type": "DelegateType"},
	"client.Task":               {"DelegateInfo": "Delegate"},
	"client.TaskEventsResponse": {"TaskEvents": "Events"},
	"client.RegisterResponse":   {"DelegateID": "ID"},
	"client.TaskEvent":          {"AccountID": "Account"},
}

// goneFields are fields without a counterpart, with advice.
var goneFields = map[string]map[string]string{
	"poller.Poller": {
		"Client": "keep the client in a variable", "Router": "keep the router in a variable", "AccountID": "the client has the account",
		"AccountSecret": "the client has the secret", "Name": "keep the name in a variable", "Tags": "keep the tags in a variable",
		"Filter": "ask Health().Maintenance, or keep the filter in a variable",
	},
	"delegate.HTTPClient": {
		"Client": "pass client.WithTransport to client.New", "Logger": "pass client.WithLogger to client.New", "Endpoint": "keep the endpoint in a variable",
		"AccountID": "keep the account in a variable", "SkipVerify": "pass client.WithInsecureSkipVerify to client.New",
		"Token": "pass client.WithToken to client.New, or call Token", "AccountTokenCache": "call Token of the client",
	},
}

// fieldTypes has the upstream types of fields of upstream types.
var fieldTypes = map[string]string{
	"client.Task.Logging": "client.LogInfo", "client.Task.DelegateInfo": "client.DelegateInfo", "client.RegisterResponse.Resource": "client.RegisterResponse",
	"client.TaskEventsResponse.TaskEvents": "[]client.TaskEvent", "poller.Poller.Client": "client.Client", "poller.Poller.Router": "router.Router",
}

// resultTypes has the first results of upstream functions and methods.
var resultTypes = map[string]string{
	"delegate.NewTokenCache": "delegate.TokenCache", "delegate.New": "delegate.HTTPClient", "delegate.NewFromToken": "delegate.HTTPClient", "poller.New": "poller.Poller", "router.NewRouter": "router.Router",
	"poller.Poller.Register": "poller.DelegateInfo", "router.Router.Route": "task.Handler",
	"client.Client.Register": "client.RegisterResponse", "delegate.HTTPClient.Register": "client.RegisterResponse",
	"client.Client.Acquire": "client.Task", "delegate.HTTPClient.Acquire": "client.Task",
	"client.Client.GetTaskEvents": "client.TaskEventsResponse", "delegate.HTTPClient.GetTaskEvents": "client.TaskEventsResponse",
}

// helpers are functions that the rewritten code needs, once for a package. The names of packages
// stand between "@".
var helpers = map[string]string{
	"clientOptions": `
// clientOptions returns the options of a client for the arguments that it had before.
func clientOptions(skipVerify bool, certsDir string) []@client@.Option {
	var options []@client@.Option
	if skipVerify {
		options = append(options, @client@.WithInsecureSkipVerify())
	} else if certsDir != "" {
		options = append(options, @client@.WithCACertsDir(certsDir))
	}
	return options
}
`,
	"mustClient": `
// mustClient panics if the settings of a client are not valid.
func mustClient(c *@client@.HTTP, err error) *@client@.HTTP {
	if err != nil {
		panic(err)
	}
	return c
}
`,
	"accountTokens": `
// accountTokens issues tokens of an account.
type accountTokens struct{ accountID, secret string }

func newAccountTokens(accountID, secret string) *accountTokens { return &accountTokens{accountID, secret} }

// Get returns a token that is valid for 20 minutes.
func (t *accountTokens) Get() (string, error) {
	c, err := @client@.New("https://localhost", t.accountID, t.secret)
	if err != nil {
		return "", err
	}
	return c.Token(20 * @time@.Minute)
}
`,
	"acceptedBy": `
// acceptedBy returns a filter for the tasks that a function accepts.
func acceptedBy(accepts func(*@task@.Event) bool) func(@task@.Event) error {
	return func(e @task@.Event) error {
		if accepts(&e) {
			return nil
		}
		return @task@.Errorf(@task@.RetryOnOtherDelegate, "the filter of the runner refuses the task")
	}
}
`,
	"delegateToken": `
// delegateToken issues a token for an account. Its lifetime is at most 24 hours.
func delegateToken(accountID, secret string, lifetime @time@.Duration) (string, error) {
	c, err := @client@.New("https://localhost", accountID, secret)
	if err != nil {
		return "", err
	}
	return c.Token(lifetime)
}
`,
}
