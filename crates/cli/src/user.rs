//! `ursa user`.

use api::{Client, Role, User, UserChange, UserCreate};
use clap::{Args, Subcommand, ValueEnum};
use terms::clock::utc;
use terms::same_names::same_names;

use super::confirm::{Confirm, show_would};
use super::error::CliError;
use super::output::Output;
use super::secret::password;
use super::table::{Table, fields};

/// What to do with users.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a user; the password is prompted for, or read from standard input
    Create {
        /// User name
        name: String,
        /// Role
        #[arg(long, value_enum)]
        role: RoleName,
        #[command(flatten)]
        from: PasswordFrom,
    },
    /// Change a user's role or password; the user is logged out on all nodes
    Set {
        /// User name
        name: String,
        /// New role
        #[arg(long, value_enum, required_unless_present_any = ["password", "password_file"])]
        role: Option<RoleName>,
        /// Prompt for a new password, or read it from standard input
        #[arg(long)]
        password: bool,
        #[command(flatten)]
        from: PasswordFrom,
        /// Show what the command would do, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Rename a user, who is logged out on all nodes; tokens that the user created remain valid
    Rename {
        /// User name
        name: String,
        /// New name
        new_name: String,
    },
    /// List users
    List,
    /// Show the authenticated user and role
    Whoami,
    /// Delete a user; the user is logged out on all nodes, but tokens that the user created remain valid
    Delete {
        /// User name
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// View only
    Viewer,
    /// Also change what hosts use: volumes, copies, targets, host groups, sessions
    Operator,
    /// Also change machines, the cluster, users and tokens
    Admin,
}

same_names! {
    pub fn asked_role(RoleName) -> Role { Viewer, Operator, Admin }
}

/// Where a password comes from.
#[derive(Args, Debug)]
pub struct PasswordFrom {
    /// Read the password from this file; - is standard input
    #[arg(long, value_name = "FILE")]
    password_file: Option<std::path::PathBuf>,
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { name, role, from } => {
                let password = password(&format!("Password for {name}"), from.password_file)?;
                let user = client.create_user(&UserCreate { name, role: asked_role(role), password })?;
                output
                    .show(&user, |user| format!("User {} created with the role {}.\n", user.name, user.role))
            }
            Command::Set { name, role, password: asked, from, dry_run } => {
                let wanted = asked || from.password_file.is_some();
                let read = || password(&format!("New password for {name}"), from.password_file);
                let password = if wanted { Some(read()?) } else { None };
                let change = UserChange { name: None, role: role.map(asked_role), password };
                if dry_run {
                    let would = client.would(|client| client.change_user(&name, &change))?;
                    return show_would(output, &format!("Change user {name}"), &would);
                }
                let user = client.change_user(&name, &change)?;
                output.show(&user, |user| {
                    format!(
                        "User {} changed (role {}). The user is logged out on all nodes.\n",
                        user.name, user.role
                    )
                })
            }
            Command::Rename { name, new_name } => {
                let change = UserChange { name: Some(new_name), ..UserChange::default() };
                let user = client.change_user(&name, &change)?;
                output.show(&user, |user| {
                    format!("User {name} renamed to {}. The user is logged out on all nodes.\n", user.name)
                })
            }
            Command::List => output.show(&client.users()?, |users| table(users)),
            Command::Whoami => output.show(&client.who_am_i()?, |me| {
                fields([
                    ("Name", me.name.clone()),
                    ("Role", me.role.to_string()),
                    ("Login by", me.by.to_string()),
                ])
            }),
            Command::Delete { name, confirm } => {
                let (what, done) = (format!("Delete user {name}"), format!("User {name} deleted."));
                confirm.done(client, output, &what, &done, |client| client.delete_user(&name))
            }
        }
    }
}

fn table(users: &[User]) -> String {
    let mut table = Table::new(&["NAME", "ROLE", "CREATED"]);
    for user in users {
        table.row([user.name.clone(), user.role.to_string(), utc(user.created)]);
    }
    table.text("No users.")
}
