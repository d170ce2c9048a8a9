package definition

// pipelineObjects are the objects of the pipeline itself.
func pipelineObjects() []object {
	return []object{
		{name: "file", inner: "pipeline", keys: []key{
			needed(nested("pipeline", "pipeline", "The pipeline.")),
		}},
		{name: "pipeline", keys: []key{
			text("name", "The name for people."),
			needed(fixed(text("identifier", "The name in expressions and paths: a letter or _, then letters, digits and _."))),
			text("description", "Text for people."),
			text("orgIdentifier", "The organization."),
			text("projectIdentifier", "The project."),
			pairs("tags", "Labels with or without a value."),
			items("stages", "stage item", "The stages, in the order of the run."),
			items("variables", "variable", "Values that expressions take as pipeline.variables.NAME."),
			nested("properties", "properties", "The codebase."),
			timeout("The longest time of a run, for example 1h 30m."),
			list("delegateSelectors", "Tags that the delegate must have."),
			boolean("allowStageExecutions", "Permits runs of selected stages. Runs of selected stages are always permitted."),
			nested("template", "template reference", "The template with the content of the pipeline, instead of stages."),
			ignored("triggers", "triggers are started through the API of runs, not by the pipeline"),
			ignored("notificationRules", "this service sends no notifications: follow the events of the run"),
			ignored("flowControl", "barriers belong to deployments"),
			ignored("fixedInputsOnRerun", "a repeated run always has the same inputs"),
			ignored("enforce", "there are no policies"),
		}},
		{name: "properties", keys: []key{
			nested("ci", "ci properties", "Settings of CI stages."),
		}},
		{name: "ci properties", keys: []key{
			nested("codebase", "codebase", "The repository that stages with cloneCodebase clone."),
		}},
		{name: "codebase", keys: append(cloneKeys(),
			list("sparseCheckout", "The directories that are checked out, or patterns."),
			ignored("runAsUser", "the clone runs as the user of the delegate's clone"),
			ignored("resources", "the operator limits the clone"),
		)},
		{name: "build", inner: "spec", keys: []key{
			needed(words("type", "What is built.", "branch", "tag", "PR", "commitSha")),
			needed(spec("build types", "The branch, tag, number or commitSha.")),
		}},
		{name: "branch build", keys: []key{needed(text("branch", "The branch."))}},
		{name: "tag build", keys: []key{needed(text("tag", "The tag."))}},
		{name: "pull request build", keys: []key{needed(text("number", "The number of the pull request."))}},
		{name: "commit build", keys: []key{needed(text("commitSha", "The commit."))}},
		{name: "resources", keys: []key{
			nested("limits", "limits", "The most that the step may use."),
		}},
		{name: "limits", keys: []key{
			text("memory", "Memory, for example 500Mi or 2Gi."),
			text("cpu", "Processors, for example 400m or 2."),
		}},
		{name: "variable", keys: []key{
			needed(fixed(text("name", "Letters, digits and _ . $ -."))),
			fixed(words("type", "The type of the value.", "String", "Number", "Secret")),
			text("value", "The value; of a Secret the id of the secret."),
			text("default", "The value if there is no other."),
			boolean("required", "Refuses a run without a value."),
			text("description", "Text for people."),
			ignored("allowedValues", "write value: <+input>.allowedValues(a,b)"),
		}},
		{name: "template reference", keys: []key{
			needed(fixed(text("templateRef", "The identifier of the template; account. and org. in front have no meaning here."))),
			fixed(text("versionLabel", "The version of the template.")),
			anything("templateInputs", "Values for the runtime inputs of the template, in the shape of the template."),
			ignored("gitBranch", "templates are read from the folder as it is"),
			ignored("templateVariables", "variables of templates are not supported: use runtime inputs"),
		}},
	}
}

// cloneKeys are the keys of the codebase and of GitClone.
func cloneKeys() []key {
	return []key{
		text("connectorRef", "The connector of the Git server."),
		text("repoName", "The repository, if the connector names only the server or a group."),
		{name: "build", shape: objectShape, of: "build", about: "The branch, tag, pull request or commit."},
		number("depth", "The number of commits that are fetched; 0 fetches all."),
		boolean("sslVerify", "false accepts any certificate of the Git server."),
		boolean("lfs", "Fetches large files."),
		ignoredUnless("fetchTags", "use git fetch --tags in a step", "false"),
		ignoredUnless("persistCredentials", "the credentials never stay in the clone", "false"),
		words("prCloneStrategy", "Clones the merge of a pull request, or its head.", "MergeCommit", "SourceBranch"),
		ignoredUnless("debug", "the log of a clone has one level", "false"),
		words("submoduleStrategy", "Fetches submodules.", "true", "false", "recursive"),
		text("cloneDirectory", "The directory of the clone."),
		ignored("preFetchCommand", "no command runs before the fetch"),
	}
}
