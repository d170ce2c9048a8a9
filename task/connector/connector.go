package connector

// connector is the description of an outside system. Handlers must not write it to a log:
// Secrets has values on the delegate.
type connector struct {
	// ID is the name that the manager keeps the connector under.
	ID string `json:"id,omitempty"`
	// Kind is one of the constants below.
	Kind string `json:"kind"`
	// Address is a URL, or for Git over SSH also user@host:path. Kinds of public services have a default.
	Address string `json:"address,omitempty"`
	// Secrets are credentials by their names, such as token. In the manager each is a
	// reference such as vault://kv/ci#token, in the data of a task ${{secrets.vault://kv/ci#token}},
	// and in a handler its value.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Options are settings that are not secret, by their names. docs/connectors.md lists them.
	Options map[string]string `json:"options,omitempty"`
}

// The kinds of connectors.
const (
	kindGit         = "git" // any server, over HTTPS or SSH
	kindGitHub      = "github"
	kindGitLab      = "gitlab"
	kindBitbucket   = "bitbucket"
	kindGitea       = "gitea"
	kindAzureRepos  = "azure-repos"
	kindRegistry    = "registry" // any OCI registry
	kindDockerHub   = "docker-hub"
	kindECR         = "ecr"
	kindGAR         = "gar" // Artifact Registry and gcr.io
	kindACR         = "acr"
	kindHarbor      = "harbor"
	kindArtifactory = "artifactory"
	kindAWS         = "aws"
	kindGCP         = "gcp"
	kindAzure       = "azure"
	kindKubernetes  = "kubernetes"
	kindVault       = "vault"
	kindS3          = "s3"
	kindHTTP        = "http"
)

// The names of secrets.
const (
	secretToken     = "token"
	secretUsername  = "username"
	secretPassword  = "password"
	secretAccessKey = "access_key"
	secretSecretKey = "secret_key"
	// secretKey is a private key for SSH in PEM, or a key file of a cloud in JSON.
	secretKey = "key"

	secretSessionToken = "session_token"
	secretClientCert   = "client_cert"
	secretClientKey    = "client_key"
)

// The names of options.
const (
	optionCA         = "ca"
	optionUsername   = "username"
	optionRepository = "repository"
	optionAccess     = "access"
	optionKnownHosts = "known_hosts"
	optionRegion     = "region"
	optionBucket     = "bucket"
	optionPrefix     = "prefix"
	optionPathStyle  = "path_style"
	optionProject    = "project"
	optionTenant     = "tenant"
	optionClient     = "client_id"
	optionNamespace  = "namespace"
	optionPath       = "path"
	optionAssumeRole = "assume_role"
	optionExternalID = "external_id"
	optionResource   = "resource"
)
