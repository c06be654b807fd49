"""The executor `regatta-slurm` of Snakemake, which finds it by this package's name on Python's path.

`make env` adds this folder's parent to the path of its environment. Elsewhere:
export PYTHONPATH=/path/to/regatta/workflow/plugins
"""

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,  # sbatch --export=ALL passes them
    auto_deploy_default_storage_provider=False,
)


class Executor(RemoteExecutor):
    """Stands for the executor of the checkout whose rules are run: one environment may serve several.

    Snakemake imports this at each start, also of other workflows, so nothing of Regatta is loaded before it is needed.
    """

    def __new__(cls, *arguments: object):
        try:
            from regatta.launchers.slurm_executor import Executor as OfCheckout
        except ModuleNotFoundError:
            raise WorkflowError("The executor regatta-slurm runs only workflows with Regatta's rules.") from None
        return OfCheckout(*arguments)
